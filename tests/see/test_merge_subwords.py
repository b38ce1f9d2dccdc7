"""Merging subwords: rows keep their sum, every subword belongs to one word, words are those of the text."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from regard.core.errors import BadInput
from regard.core.trace import Geometry, Slots, Trace
from regard.see import merge_subwords
from regard.see.merge_subwords import merge_tokens, word_spans
from regard.tokens.tokenizer import KINDS, Tokenizer
from regard.tokens.word_tokenizer import split_words

LINES = ["The old dogs bark at the snow.", "A cat doesn't sleep on the mat, and the dogs look on."] * 4
SPOKEN = 'Unsnowy "dogs" don\'t bark (at all), Hu-Li!'


def vocabulary(kind: str) -> Tokenizer:
    lines = [*LINES, SPOKEN] if kind in ("word", "char", "unigram", "bpe") else LINES
    return Tokenizer.train(lines, kind=kind, size=300 if kind == "bytes" else 90)


def read(text: Tokenizer, line: str) -> list[str]:
    return text.pieces([text.bos, *text.encode_one(line), text.eos])


def spelled(text: Tokenizer, pieces: list[str]) -> tuple[str, ...]:
    named = merge_subwords(Trace("a", torch.eye(len(pieces))[None, None]).with_labels(pieces, pieces), text).columns
    assert named is not None
    return named


@pytest.mark.parametrize("kind", KINDS)
def test_every_subword_is_in_one_word_and_special_tokens_stand_alone(kind):
    text = vocabulary(kind)
    pieces = read(text, SPOKEN)
    found = word_spans(pieces, text)
    assert list(chain(*found)) == list(range(len(pieces)))
    assert all(found)
    assert found[0] == range(1)
    assert found[-1] == range(len(pieces) - 1, len(pieces))
    assert word_spans([], text) == []


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram", "char"])
def test_words_are_those_of_the_text_if_tokens_mark_spaces(kind):
    text = vocabulary(kind)
    pieces = read(text, SPOKEN)
    assert len(pieces) > len(split_words(SPOKEN)) + 2
    assert spelled(text, pieces) == ("<s>", *split_words(SPOKEN), "</s>")


def test_wordpieces_join_their_word():
    text = Tokenizer.train(LINES, kind="bert", size=60, lower=True)
    pieces = read(text, "The snow doesn't bark.")
    assert any(piece.startswith("##") for piece in pieces)
    assert spelled(text, pieces) == ("[CLS]", "the", "snow", "doesn", "'", "t", "bark", ".", "[SEP]")


def test_bytes_of_one_character_are_joined():
    text = vocabulary("bytes")
    assert spelled(text, read(text, "naïve “日本” 🐕 dogs")) == (
        "<s>", "naïve", "“", "日本", "”", "🐕", "dogs", "</s>"
    )  # fmt: skip
    broken = [piece for piece in read(text, "ï") if piece.startswith("⟨")][:1]
    assert spelled(text, broken) == (broken[0],)  # half a letter is named as it was


def test_unknown_characters_stay_inside_their_word():
    text = Tokenizer.train(["abc abc abc"], kind="char", size=20)
    assert spelled(text, text.pieces(text.encode_one("aébc éé"))) == ("a<unk>bc", "<unk><unk>")


def test_rows_keep_their_sum():
    torch.manual_seed(0)
    text = vocabulary("bytes")
    rows, columns = read(text, SPOKEN), read(text, "The unsnowy dogs look on.")
    w = torch.rand(1, 3, len(rows), len(columns), dtype=torch.float64)
    trace = Trace("decoder.blocks.0.cross", w / w.sum(-1, keepdim=True), "cross").with_labels(rows, columns)
    found = merge_subwords(trace, text)
    assert found.weights.shape == (1, 3, len(found.rows), len(found.columns))
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(1, 3, len(found.rows), dtype=torch.float64))
    assert (found.name, found.kind) == (trace.name, trace.kind)


def test_columns_are_added_and_rows_averaged():
    torch.manual_seed(0)
    w = torch.rand(1, 2, 5, 7, dtype=torch.float64)  # rows need not sum to one
    down, across = [range(2), range(2, 3), range(3, 5)], [range(4), range(4, 5), range(5, 7)]
    found = merge_tokens(Trace("a", w), down, across).weights
    for i, rows in enumerate(down):
        for j, columns in enumerate(across):
            block = w[..., rows.start : rows.stop, columns.start : columns.stop]
            torch.testing.assert_close(found[..., i, j], block.sum(-1).mean(-1))
        torch.testing.assert_close(found[..., i, :].sum(-1), w[..., rows.start : rows.stop, :].sum(-1).mean(-1))


def test_words_of_one_subword_change_nothing():
    w = torch.rand(1, 2, 3, 4, dtype=torch.float64)
    centres = torch.rand(1, 2, 3, 1, dtype=torch.float64) * 3
    same = merge_tokens(
        Trace("a", w, centres=centres), [range(i, i + 1) for i in range(3)], [range(i, i + 1) for i in range(4)]
    )
    assert torch.equal(same.weights, w)
    torch.testing.assert_close(same.centres, centres)


def test_centres_keep_their_relative_position():
    centres = torch.tensor([0.0, 1.0, 2.0, 3.0, -0.5, 3.5]).reshape(1, 1, 1, 6)
    found = merge_tokens(Trace("a", torch.ones(1, 1, 1, 4), centres=centres), [range(1)], [range(3), range(3, 4)])
    wanted = torch.tensor([-1 / 3, 0.0, 1 / 3, 1.0, -0.5, 1.5])
    torch.testing.assert_close(found.centres.flatten(), wanted)
    two = merge_tokens(
        Trace("a", torch.ones(1, 1, 2, 2), centres=torch.tensor([[[[0.0], [1.0]]]])), [range(2)], [range(2)]
    )
    assert float(two.centres) == 0.0


def test_regrouped_layers_are_merged_on_the_input_grid():
    turned = Slots(torch.tensor([[[[2], [0], [1]]]]), (3,))
    trace = Trace("a", torch.rand(1, 2, 3, 3), geometry=Geometry(turned, turned))
    found = merge_tokens(trace, [range(2), range(2, 3)], [range(2), range(2, 3)])
    wanted = merge_tokens(Trace("a", trace.operator()), [range(2), range(2, 3)], [range(2), range(2, 3)])
    assert torch.equal(found.weights, wanted.weights)


def test_missing_or_too_few_labels_raise():
    text = vocabulary("bytes")
    with pytest.raises(BadInput, match="has no labels"):
        merge_subwords(Trace("a", torch.eye(3)[None, None]), text)
    with pytest.raises(BadInput, match="3 rows and 3 columns, but the groups cover 2 and 3"):
        merge_tokens(Trace("a", torch.eye(3)[None, None]), [range(2)], [range(3)])
