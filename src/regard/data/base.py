"""Base classes of datasets: a dataset says only what is particular to it.

    TensorBatch      a batch: named tensors, and moving, pinning and slicing them
    Dataset          settings of a dataset: its splits by name, a quick version
    DatasetSplit     one split: an endless stream of training batches, batches of an evaluation, a fingerprint
    TokenizedSplit   a split of rows of tokens: batches of similar length
    TensorSplit      a split in memory whose examples have one shape

    @dataclass(frozen=True, eq=False)
    class DigitBatch(TensorBatch):
        pixels: UInt8[Tensor, "B C Y X"]
        labels: Int[Tensor, " B"]

    @dataclass(frozen=True)
    class Digits(Dataset):
        batch_size: int = 64

        def load(self, split):
            return TensorSplit(DigitBatch(pixels, labels), self.batch_size)

The order of training batches depends on (seed, epoch) alone, so that a run can be resumed exactly (data.batching).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch

from regard.core.errors import UnknownName, did_you_mean
from regard.core.shapes import Int, Tensor
from regard.data.batching import BatchOrder, BatchStream, LengthBucketedBatches, RowBatches, mix_seed
from regard.data.ragged import RaggedTensor, round_up

B = TypeVar("B", bound="TensorBatch")


class TensorBatch:
    """A batch: a frozen dataclass (eq=False) whose fields are tensors, the rows in their first dimension."""

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __getitem__(self, i: Any) -> Any:
        return tuple(self)[i]

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on a device; from pinned memory the copy is asynchronous."""
        return type(self)(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Self:
        """Return the batch in page-locked memory, from which a GPU copies while it computes."""
        return type(self)(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Self:
        """Return the first n rows; the padding stays."""
        return type(self)(*(x[:n] for x in self))

    def take(self, rows: Int[Tensor, " B"]) -> Self:
        """Return the rows with these numbers."""
        return type(self)(*(x[rows] for x in self))


class Dataset:
    """Settings of a dataset, a frozen dataclass. Subclasses define `load(split)`, or `load(split, tokenizer)`."""

    quick_settings: ClassVar[Mapping[str, Any]] = {}  # settings of a run of seconds; numbers are upper limits

    def title(self) -> str:
        """Return the name of the data in messages."""
        return str(getattr(self, "corpus", None) or getattr(self, "path", None) or type(self).__name__)

    def splits(self) -> list[str]:
        """Return the names of the splits, sorted."""
        return ["test", "train", "val"]

    def split(self, name: str) -> str:
        """Return the full name of a split; a unique beginning of it is enough."""
        return resolve_split(name, self.splits(), self.title())

    def quick(self) -> Self:
        """Return a small version: enough to see that everything runs."""
        changes = {}
        for name, value in self.quick_settings.items():
            current = getattr(self, name)
            changes[name] = min(current, value) if isinstance(value, int) and current is not None else value
        return replace(self, **changes)  # type: ignore[type-var]


class DatasetSplit(Generic[B]):
    """One split of a dataset. Subclasses define `__len__`, `collate` and `contents`, and an `order` of their own unless
    they have a `batch_size`."""

    batch_size: int

    def __len__(self) -> int:
        raise NotImplementedError

    def collate(self, rows: Int[Tensor, " B"]) -> B:
        """Return these rows as a batch; depends on the row numbers alone."""
        raise NotImplementedError

    def contents(self) -> Iterable[Tensor | np.ndarray]:
        """Return the arrays that the fingerprint is computed from."""
        raise NotImplementedError

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> B:
        """Return these rows as a training batch; a dataset that samples or augments examples overrides it."""
        return self.collate(rows)

    def order(self, seed: int, epoch: int) -> BatchOrder:
        """Return the batches of an epoch as row numbers: by default shuffled, `batch_size` rows each."""
        return RowBatches(len(self), self.batch_size, mix_seed(seed, epoch))

    def count(self, batch: B) -> int:
        """Return what the loss of a batch is divided by: its rows, unless a dataset counts otherwise."""
        return len(batch[0])

    def stream(self, seed: int) -> BatchStream[B]:
        """Return the endless stream of training batches."""
        return BatchStream(
            lambda epoch: self.order(seed, epoch), lambda rows: self.training_batch(rows, seed), self.count
        )

    def eval_batches(self, rows: int) -> Iterator[B]:
        """Yield every row once, in order, `rows` at a time."""
        for numbers in torch.arange(len(self)).split(rows):
            yield self.collate(numbers)

    def fingerprint(self) -> str:
        """Return a hash that changes with the contents."""
        found = blake2b(digest_size=8)
        for x in self.contents():
            found.update(np.ascontiguousarray(x).data)
        return found.hexdigest()


class TokenizedSplit(DatasetSplit[B]):
    """A split of rows of at most `max_length` tokens: training batches of similar length."""

    tokens: RaggedTensor
    max_length: int

    def __len__(self) -> int:
        return len(self.tokens)

    def order(self, seed: int, epoch: int) -> BatchOrder:
        return LengthBucketedBatches(self.tokens.lengths, self.batch_size, mix_seed(seed, epoch))

    def eval_batches(self, tokens: int) -> Iterator[B]:
        """Yield every row once, in order, at most `tokens` tokens per batch."""
        yield from super().eval_batches(max(1, tokens // self.max_length))


class TensorSplit(DatasetSplit[B]):
    """A split in memory, given as one batch of all examples."""

    def __init__(self, examples: B, batch_size: int) -> None:
        self.examples, self.batch_size = examples, batch_size

    def __len__(self) -> int:
        return len(self.examples[0])

    def collate(self, rows: Int[Tensor, " B"]) -> B:
        return self.examples.take(rows)

    def contents(self) -> Iterable[Tensor]:
        return self.examples


def longest_first(lengths: Int[Tensor, " rows"], tokens: int, multiple: int = 1) -> Iterator[Int[Tensor, " B"]]:
    """Yield the numbers of all rows, longest first, about `tokens` tokens at a time, padded to a `multiple`."""
    order = torch.sort(lengths, descending=True, stable=True).indices
    start = 0
    while start < len(order):
        rows = max(1, tokens // round_up(int(lengths[order[start]]), multiple))
        yield order[start : start + rows]
        start += rows


def resolve_split(name: str, known: Sequence[str], source: str) -> str:
    """Return the split with a name, or with a unique beginning of its name."""
    found = [name] if name in known else [k for k in known if k.startswith(name)]
    if len(found) != 1:
        hint = f"which of {', '.join(found)}?" if found else did_you_mean(name, known)
        raise UnknownName(f"{source} has no split '{name}'; {hint}")
    return found[0]
