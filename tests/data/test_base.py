"""Base classes of datasets: batches, splits, quick settings."""

from dataclasses import dataclass

import pytest
import torch

from regard.core.errors import UnknownName
from regard.core.shapes import Tensor
from regard.data.base import Dataset, TensorBatch, TensorSplit, longest_first
from regard.data.batching import StreamPosition


@dataclass(frozen=True, eq=False)
class Batch(TensorBatch):
    numbers: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Numbers(Dataset):
    batch_size: int = 4
    size: int = 10
    kind: str = "all"
    limit: int | None = None

    quick_settings = {"batch_size": 2, "limit": 3, "kind": "few"}  # noqa: RUF012

    def load(self, split):
        numbers = torch.arange(self.size)
        return TensorSplit(Batch(numbers, numbers % 2), self.batch_size)


def test_batch_to_rows_and_unpacking():
    batch = Batch(torch.arange(5), torch.ones(5))
    numbers, labels = batch
    assert (numbers is batch.numbers, labels is batch.labels) == (True, True)
    assert batch[0] is batch.numbers
    assert [len(x) for x in batch.rows(2)] == [2, 2]
    assert batch.take(torch.tensor([3, 0])).numbers.tolist() == [3, 0]
    assert isinstance(batch.to("cpu"), Batch)


def test_a_split_streams_shuffled_batches_and_evaluates_in_order():
    split = Numbers().load("train")
    first = [next(split.stream(seed).start(StreamPosition())) for seed in (1, 1, 2)]
    assert torch.equal(first[0].batch.numbers, first[1].batch.numbers)
    assert not torch.equal(first[0].batch.numbers, first[2].batch.numbers)
    assert first[0].count == 4
    assert [batch.numbers.tolist() for batch in split.eval_batches(6)] == [[*range(6)], [*range(6, 10)]]
    assert split.fingerprint() == Numbers().load("val").fingerprint() != Numbers(size=9).load("train").fingerprint()


def test_quick_settings_are_upper_limits():
    assert Numbers().quick() == Numbers(batch_size=2, kind="few", limit=3)
    assert Numbers(batch_size=1, limit=2).quick() == Numbers(batch_size=1, kind="few", limit=2)


def test_a_split_may_be_named_by_its_beginning():
    assert Numbers().split("va") == "val"
    with pytest.raises(UnknownName, match="which of test, train"):
        Numbers().split("t")


def test_rows_come_longest_first_within_the_tokens():
    rows = list(longest_first(torch.tensor([3, 9, 5, 1]), 10, multiple=2))
    assert [each.tolist() for each in rows] == [[1], [2], [0, 3]]
