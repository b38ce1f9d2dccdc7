"""ListOps: answers equal to a plain recursive evaluation, lengths as asked for, the published distribution."""

import statistics

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.synthetic.listops import OPERATORS, WORDS, ListOps, Trees

SMALL = ListOps(min_tokens=5, max_tokens=90, train_examples=300, eval_examples=100, batch_size=7)


def value(words):
    """Evaluate a list by recursion; `words` is consumed."""
    word = words.pop(0)
    if word not in OPERATORS:
        return int(word)
    found = []
    while words[0] != "]":
        found.append(value(words))
    words.pop(0)
    return {"MIN": min, "MAX": max, "MED": lambda x: int(statistics.median(x)), "SM": lambda x: sum(x) % 10}[word](
        found
    )


def test_answers_are_right():
    for split, rows in (("train", 300), ("val", 100)):
        read = SMALL.read(split)
        assert len(read) == rows
        for text, answer in read:
            words = text.split()
            assert 5 < len(words) < 90
            assert str(value(words)) == answer
            assert not words  # one complete list


def test_splits_differ_and_are_reproducible():
    assert SMALL.read("val") != SMALL.read("test")
    assert ListOps(min_tokens=5, max_tokens=90, eval_examples=100).read("val") == SMALL.read("val")
    assert ListOps(min_tokens=5, max_tokens=90, eval_examples=100, seed=1).read("val") != SMALL.read("val")


def test_trees_follow_the_published_rule():
    """Counts of a large draw: a quarter of the nodes above the last level are operators, 2 to 10 arguments each."""
    trees = Trees(np.random.default_rng(0), 4000, max_depth=5, max_args=10)
    assert len(trees.words) == 5
    assert not trees.args[-1].any()
    for args, words in zip(trees.args[:-1], trees.words[:-1], strict=True):
        assert (args > 0).mean() == pytest.approx(0.25, abs=0.03)
        assert np.array_equal(args > 0, words >= 10)
        assert set(args[args > 0]) == set(range(2, 11))
        assert np.bincount(words[args > 0] - 10).min() / (args > 0).sum() == pytest.approx(0.25, abs=0.05)


def test_a_batch_has_the_lists_between_special_tokens():
    text = SMALL.build_tokenizer()
    split = SMALL.load("val", text)
    batch = split.collate(torch.arange(9))
    assert batch.tokens.shape[1] <= SMALL.max_length
    for row, length, label, (line, answer) in zip(
        batch.tokens, batch.lengths, batch.labels, SMALL.read("val"), strict=False
    ):
        ids = row[:length].tolist()
        assert (ids[0], ids[-1]) == (text.bos, text.eos)
        assert ids[1:-1] == text.encode_one(line)
        assert (row[length:] == text.pad).all()
        assert str(int(label)) == answer
    longest = ListOps(min_tokens=1, max_tokens=3 + 2, max_args=2, max_depth=2, eval_examples=4).load("val", text)
    assert longest.collate(torch.arange(4)).tokens.shape[1] <= longest.max_length == 6


def test_what_cannot_be_made_is_refused():
    with pytest.raises(BadInput, match=r"raise data\.max_tokens"):
        ListOps(min_tokens=10, max_tokens=11).read("val")
    with pytest.raises(BadInput, match="for each of"):
        SMALL.load("val", type(SMALL.build_tokenizer()).train(["a b c"], kind="word", size=20))
    assert len(WORDS) == 15


def test_rows_may_all_have_one_length():
    """A CUDA graph, and FlexAttention's kernels, are made for one length."""
    data = ListOps(min_tokens=4, max_tokens=30, train_examples=64, row_length=32)
    split = data.load("train", data.build_tokenizer())
    assert data.max_length == 32
    few, plain = split.collate(torch.arange(3)), ListOps(min_tokens=4, max_tokens=30, train_examples=64)
    assert few.tokens.shape == (3, 32)
    shorter = plain.load("train", data.build_tokenizer()).collate(torch.arange(3))
    assert torch.equal(few.tokens[:, : shorter.tokens.shape[1]], shorter.tokens)
    assert torch.equal(few.lengths, shorter.lengths)
