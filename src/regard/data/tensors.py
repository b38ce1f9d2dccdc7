"""Datasets whose examples are tensors of one shape: a dataset of one's own says only how its tensors are made.

    class Batch(TensorBatch, namedtuple("Batch", "pixels labels")): ...

    @dataclass(frozen=True)
    class Digits(TensorDataset):
        batch_size: int = 64

        def load(self, split):
            return TensorSplit(Batch(pixels, labels), self.batch_size)

A split of this kind is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Generic, Self, TypeVar

import torch

from regard.core.shapes import Tensor
from regard.data.batching import BatchStream, RowBatches, mix_seed
from regard.data.shards.token_shards import resolve_split

T = TypeVar("T", bound="TensorBatch")


class TensorBatch:
    """What the training loop asks of a batch, for a named tuple of tensors whose first dimension counts the rows."""

    def _map(self, change: Any) -> Self:
        return type(self)(*(change(x) for x in self))  # type: ignore[attr-defined]

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on a device; from pinned memory the copy is asynchronous."""
        return self._map(lambda x: x.to(device, non_blocking=True))

    def pin(self) -> Self:
        """Return the batch in page-locked memory."""
        return self._map(Tensor.pin_memory)

    def rows(self, n: int) -> Self:
        """Return the first n rows."""
        return self._map(lambda x: x[:n])

    def take(self, rows: Tensor) -> Self:
        """Return the rows with these numbers."""
        return self._map(lambda x: x[rows])

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self[0])  # type: ignore[index]


class TensorSplit(Generic[T]):
    """One split, whole in memory."""

    def __init__(self, examples: T, batch_size: int) -> None:
        self.examples, self.batch_size = examples, batch_size

    def __len__(self) -> int:
        return self.examples.size

    def stream(self, seed: int) -> BatchStream[T]:
        """Return the endless stream of shuffled training batches."""
        return BatchStream(
            lambda epoch: RowBatches(len(self), self.batch_size, mix_seed(seed, epoch)),
            self.examples.take,
            lambda batch: batch.size,
        )

    def eval_batches(self, rows: int = 256) -> Iterator[T]:
        """Yield every example once, `rows` at a time."""
        for numbers in torch.arange(len(self)).split(rows):
            yield self.examples.take(numbers)

    def fingerprint(self) -> str:
        """Return a hash that changes with the examples."""
        found = blake2b(digest_size=8)
        for x in self.examples:  # type: ignore[attr-defined]
            found.update(x.contiguous().cpu().numpy().data)
        return found.hexdigest()


class TensorDataset:
    """The splits of a dataset: train, val and test unless `splits` says otherwise. To write: `load(split)`."""

    def splits(self) -> list[str]:
        """Return the names of the splits."""
        return ["test", "train", "val"]

    def split(self, name: str) -> str:
        """Return the full name of a split; the beginning of it is enough where it is the only one."""
        return resolve_split(name, self.splits(), type(self).__name__)

    def load(self, split: str) -> TensorSplit[Any]:
        """Return the examples of a split."""
        raise NotImplementedError
