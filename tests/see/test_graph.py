"""Graphs are placed by their distances, with a colour for every number."""

import numpy as np
import pytest

from regard import see
from regard.core.errors import BadInput
from regard.see.graph import graph_layout

RING = np.array([range(12), [*range(1, 12), 0]])


def test_a_path_is_a_line_a_ring_is_round_and_a_grid_has_no_crossings():
    path = graph_layout(np.array([range(9), range(1, 10)]), 10)
    assert np.ptp(path[:, 1]) < 0.05 * np.ptp(path[:, 0])
    np.testing.assert_allclose(np.abs(np.diff(path[:, 0])), 1, atol=0.05)
    ring = graph_layout(RING, 12)
    radius = np.linalg.norm(ring - ring.mean(0), axis=1)
    np.testing.assert_allclose(radius, radius.mean(), rtol=0.05)
    cells = np.arange(30).reshape(5, 6)
    across, down = (cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])
    grid = graph_layout(np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in (across, down)], 1), 30)
    distance = np.abs(np.stack(np.unravel_index(range(30), (5, 6)), 1)[:, None] - [[divmod(n, 6) for n in range(30)]])
    apart = np.linalg.norm(grid[:, None] - grid, axis=2)
    neighbours = distance.sum(2) == 1
    assert apart[neighbours].max() < apart[distance.sum(2) > 2].min()


def test_the_same_graph_has_the_same_picture_and_parts_stand_apart():
    edges = np.array([[0, 1, 3], [1, 2, 4]])  # 0-1-2, 3-4, and 5 alone
    place = graph_layout(edges, 6)
    np.testing.assert_array_equal(place, graph_layout(edges, 6))
    assert place[:3, 0].max() + 0.9 < place[3:5, 0].min()
    assert place[3:5, 0].max() + 0.9 < place[5, 0]
    assert graph_layout(np.zeros((2, 0), dtype=int), 1).tolist() == [[0, 0]]


def test_every_node_has_a_colour_and_few_have_names(tmp_path):
    values = np.linspace(0, 1, 12)
    figure = see.graph(RING, 12, values, [f"node {n}" for n in range(12)], "a ring", path=tmp_path / "ring.png")
    assert (tmp_path / "ring.png").stat().st_size > 1000
    nodes = figure.axes[0].collections[-1]
    assert (np.diff(nodes.get_facecolors()[:, :3].sum(1)) > 0).all()
    assert [text.get_text() for text in figure.axes[0].texts][:2] == ["node 0", "node 1"]
    arrows = see.graph(RING, 12, directed=True).axes[0].texts
    assert len(arrows) == 12
    loops = np.array([[0, 1], [0, 0]])
    many = see.graph(np.concatenate([RING, loops], 1), 80, names=[str(n) for n in range(80)])
    assert not many.axes[0].texts


@pytest.mark.parametrize(
    ("nodes", "values", "message"),
    [(0, None, "1 to 4,096 nodes"), (5000, None, "has 5,000"), (12, np.zeros(3), "for each of 12"),
     (12, np.full(12, np.nan), "finite number")],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(nodes, values, message):
    with pytest.raises(BadInput, match=message):
        see.graph(RING, nodes, values)
