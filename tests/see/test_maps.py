"""Names that people read: of layers, of pieces of words, of rows and columns."""

import pytest
import torch

from regard.core.trace import Trace
from regard.see.maps import layer_title, to_maps
from regard.see.token_display import readable_pieces


@pytest.mark.parametrize(
    ("name", "kind", "title"),
    [
        ("decoder.blocks.1.cross", "cross", "decoder layer 1, cross-attention"),
        ("encoder.blocks.11.mix", "self", "encoder layer 11, self-attention"),
        ("blocks.3.attn", "self", "layer 3, self-attention"),
        ("encoder.layer.0.attention.self", "self", "encoder layer 0, self-attention"),
        ("decoder.aligner", "align", "decoder, alignment"),
        ("aligner", "align", "alignment"),
        ("rollout", "self", "all layers as one (rollout)"),
        ("attention", "self", "attention"),
        ("my own map", "self", "my own map"),
    ],
)
def test_a_layer_has_a_title_in_words(name, kind, title):
    assert layer_title(name, kind) == title


def test_pieces_are_shown_without_marks_of_spaces():
    assert readable_pieces(["▁Je", "▁l", "'", "ai", "▁cre", "use", ".", "</s>"]) == [
        "Je", "l", "'", "ai", "cre", "-use", ".", "</s>",
    ]  # fmt: skip
    assert readable_pieces(["R", "O", "▁", "I"]) == ["R", "O", "␣", "I"]  # characters
    assert readable_pieces(["two", "dogs", "##er"]) == ["two", "dogs", "##er"]
    assert readable_pieces(["▁", "▁dog"]) == ["␣", "dog"]


def test_maps_say_which_side_is_predicted():
    square = Trace("decoder.blocks.0.mix", torch.eye(3)[None, None])
    predicted = to_maps(square.with_labels(("O", "M", "E"), ("R", "O", "M")))
    assert predicted.sides == ("predicted token", "from the tokens up to this one")
    assert "a token that is predicted" in predicted.explanation
    words = to_maps(square.with_labels(("an", "old", "dog"), ("an", "old", "dog")))
    assert words.sides == ("word", "looks at")
    cross = to_maps(Trace("decoder.blocks.0.cross", torch.eye(3)[None, None], "cross"))
    assert cross.sides == ("output word", "looks at input word")
    assert cross.explanation == "Each row is an output word, its columns are the input words that it looks at."
    read = to_maps(Trace("read_address", torch.eye(3)[None, None], "read"))
    assert read.explanation == "Each row is a step, its columns are the cells that it looks at."
    sounds = to_maps(
        Trace("aligner", torch.eye(3)[None, None], "align").with_labels(("AY", "N", "</s>"), ("I", "n", "</s>"))
    )
    assert sounds.explanation == "Each row is an output token, its columns are the input characters that it looks at."
