"""Point clouds are drawn from three sides, with a colour for every number or class."""

import numpy as np
import pytest

from regard import see
from regard.core.errors import BadInput
from regard.see.point_cloud import project

POINTS = np.random.default_rng(0).standard_normal((40, 3))


def colours(figure, view=0):
    return figure.axes[view].collections[0].get_facecolors()


def test_every_view_has_all_points_and_larger_values_are_drawn_on_top(tmp_path):
    values = np.linspace(0, 1, 40)[::-1]
    figure = see.point_cloud(POINTS, values, "a cloud", "and more about it", path=tmp_path / "cloud.png")
    assert (tmp_path / "cloud.png").stat().st_size > 1000
    views = [axes for axes in figure.axes if axes.collections and len(axes.collections[0].get_offsets()) == 40]
    assert len(views) == 3
    bright = colours(figure)[:, :3].sum(1)
    assert (np.diff(bright) >= -1e-9).all()  # magma grows brighter
    plain = see.point_cloud(POINTS)
    assert len({tuple(c) for c in colours(plain)}) == 1
    named = see.point_cloud(POINTS, np.arange(40) % 2, classes=["leg", "seat"])
    assert len({tuple(c) for c in colours(named)}) == 2


def test_points_are_seen_from_the_angles():
    across, up, near = project(np.array([[1.0, 2.0, 3.0]]), 0, 0)  # from the front: along y
    assert (across[0], up[0], near[0]) == (1, 3, -2)
    across, up, near = project(np.array([[1.0, 2.0, 3.0]]), 0, 90)  # from above
    np.testing.assert_allclose([across[0], up[0], near[0]], [1, 2, 3], atol=1e-12)


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        (np.zeros((0, 3)), None, "finite points"),
        (np.zeros((4, 2)), None, "shape N 3"),
        (np.full((4, 3), np.nan), None, "finite points"),
        (POINTS, np.zeros(3), "a finite number for each of 40"),
    ],
)
def test_what_cannot_be_drawn_is_refused(points, values, message):
    with pytest.raises(BadInput, match=message):
        see.point_cloud(points, values)
