"""Running text that does not fit into memory: rows are windows over token shards, read through a memory map.

    documents   the whale </s> a dog runs </s> ...               end to end over all shards of a split
    row         context + 1 tokens from offset + i · context     inputs are all but the last, targets all but the first
    order       Shuffle(rows, key of (seed, epoch))              computed, not stored (data.shuffle)
    state       StreamPosition(epoch, position)                  two numbers, see data.batching

The offset changes with every epoch, so that the windows do too; within an epoch no token is predicted twice. Rows
depend on seed, epoch and the tokens alone: not on the shard boundaries, the number of processes that share a batch, or
the number of threads that make it. Memory holds only the index and the current batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.batching import mix_seed
from regard.data.datasets import describe_missing
from regard.data.shards.index import DTYPES, ShardIndex
from regard.data.shuffle import Shuffle

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

IGNORE_INDEX = -100  # target that cross-entropy ignores


@dataclass(frozen=True, eq=False)
class TokenBatch(TensorBatch):
    """A batch of running text: at each position a token and the next one."""

    inputs: Int[Tensor, "B N"]
    targets: Int[Tensor, "B N"]  # IGNORE_INDEX where there is no target


@dataclass(frozen=True)
class TokenShards(Dataset):
    """Settings of the dataset."""

    path: str = "shards"  # a folder made by regard data pack, or the name of a dataset
    context_length: int = 1024  # tokens per row
    batch_size: int = 16  # rows per batch over all processes
    limit: int | None = None  # use only the first rows of every split

    quick_settings = {"context_length": 64, "batch_size": 4, "limit": 16}  # noqa: RUF012

    @property
    def folder(self) -> Path:
        return find_shards(self.path)

    def index(self) -> ShardIndex:
        index = ShardIndex.read(self.folder)
        if index.kind != "tokens":
            raise BadInput(f"{self.folder} holds {index.kind}, not tokens; pack text without --images")
        return index

    def splits(self) -> list[str]:
        return sorted(self.index().splits)

    def load(self, split: str) -> TokenWindows:
        """Open a split without reading it."""
        index = self.index()
        name = self.split(split)
        if problem := index.tokenizer_error(self.folder):
            raise BadInput(problem)
        shards = index.part(name)
        return TokenWindows(
            [memory_map(self.folder / s.file, index.dtype, s.values) for s in shards],
            self.context_length,
            self.batch_size,
            vocab_size=int(index.vocabulary["size"]),
            limit=self.limit,
            fingerprint=index.fingerprint(name),
            names=[str(self.folder / s.file) for s in shards],
        )

    def document(self, split: str, number: int) -> np.ndarray:
        """Return the tokens of one document, with its end token."""
        index = self.index()
        name = self.split(split)
        start = tokens = documents = 0  # start of the next document; totals of the shards so far
        for shard in index.part(name):
            ends = memory_map(self.folder / shard.ends, "<u8", shard.items)
            at = number - documents
            if 0 <= at < shard.items:
                begin = tokens + int(ends[at - 1]) if at else start
                return (
                    replace(self, context_length=1, batch_size=1, limit=None)
                    .load(name)
                    .window(begin, tokens + int(ends[at]))
                )
            start = tokens + int(ends[-1]) if shard.items else start
            tokens, documents = tokens + shard.values, documents + shard.items
        raise BadInput(f"{self.path} has {documents} documents in {name}, numbered from 0; got {number}")

    def bytes(self, split: str) -> int:
        """Return the length of a split's text in UTF-8 bytes, without document breaks, for bits per byte."""
        index = self.index()
        name = self.split(split)
        return int(index.created.get("bytes", {}).get(name, 0))

    def build_tokenizer(self) -> Tokenizer:
        from regard.tokens.tokenizer import Tokenizer

        return Tokenizer.load(self.folder)


class TokenWindows(DatasetSplit[TokenBatch]):
    """Rows over arrays of tokens that form one long text; the arrays may be memory maps."""

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        context_length: int,
        batch_size: int,
        vocab_size: int | None = None,
        limit: int | None = None,
        fingerprint: str | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.parts = [part for part in parts if len(part)]
        self.names = [name for name, part in zip(names, parts, strict=True) if len(part)] if names else []
        self.begins = np.cumsum([0, *map(len, self.parts)]).tolist()
        self.context_length, self.batch_size, self.vocab_size = context_length, batch_size, vocab_size
        if context_length < 1 or batch_size < 1:
            raise BadInput(f"data.batch_size={batch_size} and data.context_length={context_length} must be 1 or more")
        self.tokens = int(self.begins[-1])
        if limit is not None:
            self.tokens = min(self.tokens, limit * context_length + 1)
        if self.tokens <= context_length:
            raise BadInput(
                f"there are {self.tokens} tokens, but a row takes {context_length + 1}: lower data.context_length, or "
                "pack more text"
            )
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        """Return the rows of an epoch; some epochs have one less, since the offset differs."""
        return (self.tokens - 1) // self.context_length

    @cached_property
    def _content_hash(self) -> str:
        """The fingerprint of arrays that have no index: of every token."""
        from hashlib import blake2b

        found = blake2b(digest_size=8)
        for part in self.parts:
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def fingerprint(self) -> str:
        return self._fingerprint or self._content_hash

    def order(self, seed: int, epoch: int) -> _Epoch:
        return _Epoch(self, mix_seed(seed, epoch))

    def count(self, batch: TokenBatch) -> int:
        return count_predicted_tokens(batch)

    def eval_batches(self, tokens: int, max_rows: int | None = None, stride: int | None = None) -> Iterator[TokenBatch]:
        """Yield every token once, in order, about `tokens` tokens per batch.

        With a `stride` a row begins that many tokens after the one before, and only its last `stride` tokens are
        predicted (in the first row all): each from at least context - stride tokens before it. The last row is padded
        with ignored targets. With `max_rows`, only that many rows, spread evenly.
        """
        step = self.context_length if stride is None else stride
        if not 1 <= step <= self.context_length:
            raise BadInput(f"stride must be 1 to {self.context_length} (data.context_length), got {step}")
        count = 1 + max(0, -(-(self.tokens - 1 - self.context_length) // step))
        rows = np.arange(count) if max_rows is None or max_rows >= count else np.arange(max_rows) * count // max_rows
        rows_per_batch = max(1, tokens // self.context_length)
        for first in range(0, len(rows), rows_per_batch):
            batch = self.collate(torch.from_numpy(rows[first : first + rows_per_batch] * step))
            # these were predicted in the row before
            batch.targets[int(rows[first] == 0) :, : self.context_length - step] = IGNORE_INDEX
            yield batch

    def collate(self, starts: Int[Tensor, " B"]) -> TokenBatch:
        """Return the rows that begin at these tokens."""
        n = self.context_length
        inputs = np.zeros((len(starts), n), np.int64)
        targets = np.full((len(starts), n), IGNORE_INDEX, np.int64)
        for row, start in enumerate(starts.tolist()):
            window = self.window(start, min(start + n + 1, self.tokens))
            inputs[row, : len(window)] = window[:n]
            targets[row, : len(window) - 1] = window[1:]
        if self.vocab_size is not None and max(inputs.max(), targets.max()) >= self.vocab_size:
            self._raise_bad_token(starts)
        return TokenBatch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def _raise_bad_token(self, starts: Int[Tensor, " B"]) -> None:
        """Raise for a token outside the vocabulary, before it crashes the device."""
        for start in starts.tolist():
            worst = int(self.window(start, min(start + self.context_length + 1, self.tokens)).max())
            if worst >= (self.vocab_size or 0):
                source = self.names[self._part(start)] if self.names else "the array"
                raise BadInput(
                    f"{source} has the token {worst}, but the vocabulary has {self.vocab_size}: it is damaged; "
                    f"run regard data check"
                )

    def window(self, start: int, end: int) -> np.ndarray:
        """Return the tokens from start to end, from one part or several."""
        part = self._part(start)
        first = self.parts[part][start - self.begins[part] : end - self.begins[part]]
        if len(first) == end - start:
            return first
        return np.concatenate([first, self.window(start + len(first), end)])

    def _part(self, start: int) -> int:
        return bisect_right(self.begins, start) - 1


class _Epoch:
    """Batches of one epoch, as the start tokens of their rows; leftover rows are dropped."""

    def __init__(self, windows: TokenWindows, key: int) -> None:
        n = windows.context_length
        self.batch_size, self.context_length = windows.batch_size, n
        self.offset = key % min(n, windows.tokens - n)  # always leaves at least one row
        self.shuffle = Shuffle((windows.tokens - 1 - self.offset) // n, key)

    def __len__(self) -> int:
        return max(1, self.shuffle.size // self.batch_size)  # one smaller batch if there are fewer rows

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        positions = np.arange(i * self.batch_size, min((i + 1) * self.batch_size, self.shuffle.size))
        return torch.from_numpy(self.offset + self.shuffle(positions) * self.context_length)


def count_predicted_tokens(batch: TokenBatch) -> int:
    """Return the number of predicted tokens."""
    return count_targets(batch.targets)


def count_targets(targets: Tensor) -> int:
    """Return the number of targets that are not ignored."""
    is_cpu = targets.device.type == "cpu"
    is_target = (targets.numpy() if is_cpu else targets) != IGNORE_INDEX
    return int(is_target.sum())  # NumPy on the host: torch would start its own threads in each batching thread


def find_shards(path: str) -> Path:
    """Return a folder of shards by path or dataset name."""
    folder = Path(path).expanduser()
    try:
        return folder if folder.is_dir() else data_dir.find_dataset(path)
    except BadInput:
        raise BadInput(
            f"there is no folder of shards '{path}', here or among the datasets{describe_missing(path)}; make one with "
            "regard data pack"
        ) from None


def memory_map(file: Path, dtype: str, values: int) -> np.ndarray:
    """Memory-map a file of `values` numbers."""
    if not values:  # an empty file cannot be mapped
        return np.zeros(0, DTYPES.get(dtype, dtype))
    try:
        return np.memmap(file, DTYPES.get(dtype, dtype), "r", shape=(values,)).view(np.ndarray)  # cheaper to slice
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
