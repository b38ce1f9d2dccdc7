"""Figures of handwriting: strokes where the pen was down, colours of the attended characters, clear errors."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from regard.core.errors import BadInput
from regard.see import strokes
from regard.see.layout import PALETTE

LINE = np.array([[0.2, -0.5, 0], [0.1, 0.5, 1], [0.3, -0.4, 1], [0.2, 0.0, 0], [0.1, 0.4, 0], [0.1, -0.1, 1.0]])
WINDOW = np.array([[0.9, 0.1, 0], [0.8, 0.2, 0], [0.2, 0.7, 0], [0.1, 0.9, 0.5], [0, 0.3, 0.4], [0, 0.2, 0.9]])


def ink(figure):
    return [c for axes in figure.axes for c in axes.collections if isinstance(c, LineCollection)]


def test_only_pen_down_segments_are_drawn():
    (found,) = ink(strokes([LINE]))
    pieces = np.array(found.get_segments())
    places = LINE[:, :2].cumsum(0)
    np.testing.assert_allclose(pieces, [places[[0, 1]], places[[3, 4]], places[[4, 5]]])
    dots = [c for c in strokes([LINE]).axes[0].collections if not isinstance(c, LineCollection)]
    np.testing.assert_allclose(dots[0].get_offsets(), [places[2]])  # down and up again


def test_segment_has_the_colour_of_the_attended_character():
    figure = strokes([LINE], ["42"], [WINDOW])
    (found,) = ink(figure)
    assert [to_hex(c) for c in found.get_colors()] == [PALETTE[0], PALETTE[1], PALETTE[1]]  # the end owns nothing
    names = [t.get_text() for t in figure.axes[1].get_yticklabels()]
    assert names == ["4", "2", "end"]
    np.testing.assert_allclose(figure.axes[1].images[0].get_array(), WINDOW.T)


def test_all_lines_share_one_scale(tmp_path):
    wide = LINE * [4, 1, 1]
    figure = strokes([LINE, wide], path=tmp_path / "ink.svg")
    sizes = [axes.get_position().width / np.ptp(axes.get_xlim()) for axes in figure.axes]
    assert sizes[0] == pytest.approx(sizes[1])
    x, y = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    assert y[0] > y[1]  # y points down
    width, height = figure.get_size_inches()
    box = figure.axes[0].get_position()
    assert box.width * width / np.ptp(x) == pytest.approx(box.height * height / abs(np.ptp(y)), rel=1e-6)
    assert (tmp_path / "ink.svg").read_text().startswith("<?xml")


def test_ink_is_thinner_where_digits_are_small():
    (near,), (far,) = ink(strokes([LINE])), ink(strokes([LINE * [100, 1, 1]]))
    assert far.get_linewidths()[0] < near.get_linewidths()[0] / 2


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (([],), "`lines` is empty"),
        (([LINE[:, :2]],), "shape T 3"),
        (([LINE[:0]],), "shape T 3"),
        (([LINE * np.nan],), "infinite"),
        (([LINE], ["1", "2"]), "texts"),
        (([LINE], ["1"], [WINDOW[:3]]), "one row per point"),
    ],
)
def test_invalid_input_raises(arguments, match):
    with pytest.raises(BadInput, match=match):
        strokes(*arguments)
