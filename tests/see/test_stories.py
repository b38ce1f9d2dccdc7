"""Pictures of hops over sentences."""

import pytest
import torch

from regard import see
from regard.core.errors import BadInput


def test_hops_are_drawn_with_supporting_sentences_marked(tmp_path):
    weights = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.0, 1.0]])
    figure = see.story_hops(["Mary moved.", "John went to the hall."], weights, "Where is John? hall", support=[1])
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["Mary moved.", "John went to the hall."]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["hop 1", "hop 2", "hop 3"]
    (box,) = axes.patches
    assert (box.get_xy(), box.get_width()) == ((-0.5, 0.5), 3)
    assert {text.get_text() for text in axes.texts} == {"0.90", "0.10", "0.20", "0.80", "1.00"}
    assert see.save(figure, tmp_path / "hops.png").stat().st_size > 1000


def test_the_colour_bar_of_a_short_story_has_room_for_its_label():
    figure = see.story_hops(["A dog."], torch.ones(3, 1), "Who? dog")
    figure.canvas.draw()
    label = figure.axes[1].yaxis.label.get_window_extent()
    assert label.y0 >= 0
    assert label.y1 <= figure.bbox.height


def test_wrong_shapes_are_refused():
    with pytest.raises(BadInput, match="weights of 2 sentences do not fit 1"):
        see.story_hops(["A dog."], torch.ones(1, 2))
    with pytest.raises(BadInput, match="supporting sentence 4"):
        see.story_hops(["A dog."], torch.ones(1, 1), support=[4])
