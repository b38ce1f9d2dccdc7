"""Recall and copying: every answer stands in the row, before its mark; rows depend on seed, split and number alone."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.synthetic.symbols import BLANK, FILLER, FIRST_SYMBOL, AssociativeRecall, Copying

RECALL = AssociativeRecall(context_length=50, symbols=21, pairs=7, eval_examples=20, batch_size=4)
COPY = Copying(context_length=19, symbols=5, eval_examples=20, batch_size=4)


@pytest.mark.parametrize("data", [RECALL, COPY])
def test_only_symbols_are_answers(data):
    batch = data.load("val").collate(torch.arange(20))
    assert batch.inputs.shape == batch.targets.shape == (20, data.context_length)
    if data is COPY:
        assert torch.equal(batch.inputs == BLANK, batch.targets != IGNORE_INDEX)
    answers = batch.targets[batch.targets != IGNORE_INDEX]
    assert answers.min() >= FIRST_SYMBOL
    assert answers.max() < data.vocab_size
    assert batch.inputs.max() < data.vocab_size


def test_a_key_has_one_value_which_is_the_answer_where_it_stands_again():
    batch = RECALL.load("train").collate(torch.arange(30))
    for tokens, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        pairs = dict(zip(tokens[0:14:2], tokens[1:14:2], strict=True))
        assert len(pairs) == 7
        asked = [n for n, target in enumerate(targets) if target != IGNORE_INDEX]
        assert min(asked) >= 14
        assert sorted(tokens[n] for n in asked) == sorted(pairs)
        assert [targets[n] for n in asked] == [pairs[tokens[n]] for n in asked]
        assert all(tokens[n] == FILLER for n in range(14, 50) if n not in asked)


def test_copies_are_the_symbols_in_order():
    batch = COPY.load("train").collate(torch.arange(30))
    assert torch.equal(batch.targets[:, 10:], batch.inputs[:, :9])
    assert (batch.inputs[:, 9] == FILLER).all()
    even = Copying(context_length=20, symbols=5).load("train").collate(torch.arange(3))
    assert torch.equal(even.targets[:, -9:], even.inputs[:, :9])


@pytest.mark.parametrize("data", [RECALL, COPY])
def test_rows_are_reproducible_and_splits_differ(data):
    rows = torch.tensor([3, 0, 17])
    first = data.load("train").collate(rows)
    assert torch.equal(first.inputs, data.load("train").collate(torch.arange(18)).inputs[rows])
    assert not torch.equal(first.inputs, data.load("val").collate(rows).inputs)
    assert data.load("train").fingerprint() != type(data)(**{**vars(data), "seed": 5}).load("train").fingerprint()
    stream = data.load("train").stream(3)
    drawn = [item for _, item in zip(range(5), stream.start(StreamPosition()), strict=False)]
    again = stream.start(drawn[2].next_position)
    assert torch.equal(next(again).batch.inputs, drawn[3].batch.inputs)


def test_too_many_pairs_are_refused():
    with pytest.raises(BadInput, match="at least 32 tokens"):
        AssociativeRecall(context_length=31, symbols=64, pairs=8).load("val")
    with pytest.raises(BadInput, match="16 symbols"):
        AssociativeRecall(context_length=64, symbols=15, pairs=8).load("val")
