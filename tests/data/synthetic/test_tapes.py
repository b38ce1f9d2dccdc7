"""Tapes are what the paper describes, and depend on row numbers alone."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.core.spec import resolve
from regard.data import DATA
from regard.data.synthetic.tapes import CopyTape, RecallTape, RepeatCopyTape, Size

EVERY = {name: resolve(DATA, name, "data")() for name in ("copy_tape", "repeat_copy", "associative_recall")}


def first(data, size, split="test"):
    return next(data.load(split).batches_of(size, rows=5))


def test_a_copy_is_the_sequence_an_end_mark_and_silence():
    batch = first(CopyTape(), Size(7))
    assert batch.inputs.shape == (5, 15, 9)
    assert torch.equal(batch.inputs[:, :7, :8], batch.targets)
    assert torch.equal(batch.inputs[:, :, 8], torch.eye(15)[7].expand(5, 15))
    assert not batch.inputs[:, 8:].any()
    assert 0.4 < first(CopyTape(), Size(100)).targets.mean() < 0.6


def test_a_repeat_copy_says_how_often_and_ends_with_a_mark():
    data = RepeatCopyTape()
    batch = first(data, Size(4, 3))
    assert batch.inputs.shape == (5, 4 + 1 + 13, 10)
    assert torch.equal(batch.targets[:, :12, :8], batch.inputs[:, :4, :8].repeat(1, 3, 1))
    assert torch.equal(batch.targets[:, :, 8], torch.eye(13)[12].expand(5, 13))
    counts = torch.tensor([float(first(data, Size(1, n)).inputs[0, 1, 9]) for n in range(1, 11)])
    torch.testing.assert_close(counts.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(counts.std(correction=0), torch.tensor(1.0))


def test_the_answer_of_a_recall_follows_the_item_asked_for():
    batch = first(RecallTape(), Size(6))
    assert batch.inputs.shape == (5, 6 * 4 + 5 + 3, 8)
    for tape, answer in zip(batch.inputs, batch.targets, strict=True):
        items = tape[:24].unflatten(0, (6, 4))
        assert torch.equal(items[:, :, 6], torch.eye(4)[0].expand(6, 4))
        assert torch.equal(tape[24:, 7], torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0]))
        at = [n for n in range(5) if torch.equal(items[n, 1:, :6], tape[25:28, :6])]
        assert any(torch.equal(items[n + 1, 1:, :6], answer) for n in at)


@pytest.mark.parametrize("name", EVERY)
def test_batches_depend_on_seed_and_position_alone(name):
    split = EVERY[name].load("train")
    order = split.order(seed=1, epoch=2)
    assert torch.equal(order[17], split.order(1, 2)[17])
    for one, other in zip(split.collate(order[17]), EVERY[name].load("train").collate(order[17]), strict=True):
        assert torch.equal(one, other)
    sizes = {split.collate(order[i]).inputs.shape[1] for i in range(200)}
    assert len(sizes) > 4
    val = EVERY[name].load("val")
    size = EVERY[name].eval_sizes("val")[-1]
    train_like = split.collate(next(iter(torch.tensor([[val.settings.vectors(size)]]))) * 0 + _row(size))
    assert not torch.equal(train_like.targets, val.collate(_row(size)[None]).targets)
    assert split.fingerprint() == EVERY[name].load("train").fingerprint() != val.fingerprint()


def _row(size):
    from regard.data.synthetic.tapes import encode_rows

    return encode_rows(torch.tensor(3), size)


@pytest.mark.parametrize("name", EVERY)
def test_an_example_reads_as_a_tape(name):
    data = EVERY[name]
    batch = data.read_line(data.example)
    assert batch.inputs.shape[2] == data.input_dim
    assert batch.targets.shape[2] == data.output_dim


def test_bad_tapes_are_one_sentence():
    for data, line, words in (
        (CopyTape(bits=3), "", "1 to 1023 vectors, got 0"),
        (CopyTape(bits=3), "101 10", "'10' is no vector"),
        (CopyTape(bits=3), "101 102", "'102' is no vector"),
        (RepeatCopyTape(bits=3), "101", "how often"),
        (RepeatCopyTape(bits=3), "101 x0", "how often"),
        (RecallTape(bits=1, item_vectors=1), "0 , 1", "after a question mark: 0 , 1 [?] 0"),
        (RecallTape(bits=1, item_vectors=1), "0 , 1 ? 1", "not one of those"),
        (RecallTape(bits=1, item_vectors=2), "0 , 1 ? 1", "an item has 2 vectors"),
    ):
        with pytest.raises(BadInput, match=words):
            data.read_line(line)
    with pytest.raises(BadInput, match=r"above data\.max_length"):
        CopyTape(min_length=5, max_length=4)
    with pytest.raises(BadInput, match="at most 1023"):
        CopyTape(test_lengths=(2000,))
