"""Running text that does not fit into memory: rows are windows over token shards, read through a memory map.

    documents   the whale </s> a dog runs </s> ...               end to end over all shards of a part
    row         context + 1 tokens from offset + i · context    inputs are all but the last, targets all but the first
    order       Shuffle(rows, key of (seed, epoch))              computed, not held (data.shuffle)
    state       Place(epoch, position)                           two numbers, see data.batching

The offset is another one in every epoch, so that the windows are too; within an epoch no token is predicted twice. Rows
depend on seed, epoch and the tokens alone: not on how those are cut into shards, on the number of processes that share
a batch, or on the number of threads that make it. What is held in memory is the index and the batches under way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from regard.core.errors import BadInput, UnknownName, nearest
from regard.core.shapes import Int, Tensor
from regard.data import home
from regard.data.batching import Stream, mixed
from regard.data.index import DTYPES, Index
from regard.data.shuffle import Shuffle

if TYPE_CHECKING:
    from regard.tokens.text import Text

NOTHING = -100  # a target that is not to be predicted; cross-entropy passes it over


class Tokens(NamedTuple):
    """A batch of running text: at each place a token and the one that follows it."""

    inputs: Int[Tensor, "B N"]
    targets: Int[Tensor, "B N"]  # NOTHING where there is none

    def to(self, device: torch.device | str) -> Tokens:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Tokens(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Tokens:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Tokens(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Tokens:
        """Only the first n rows."""
        return Tokens(*(x[:n] for x in self))


@dataclass(frozen=True)
class Shards:
    """Which token shards, how long a row is, and how many rows go into a batch."""

    path: str = "shards"  # the folder that regard data pack made, or its name among the datasets
    context: int = 1024  # tokens a row
    rows: int = 16  # in a batch, all processes together
    limit: int | None = None  # only the first so many rows of every part

    def quick(self) -> Shards:
        """A few short rows: enough to see that everything runs."""
        return replace(self, context=min(self.context, 64), rows=min(self.rows, 4), limit=16)

    @property
    def folder(self) -> Path:
        """Where they are."""
        return located(self.path)

    def index(self) -> Index:
        """What is known of them."""
        index = Index.read(self.folder)
        if index.kind != "tokens":
            raise BadInput(f"{self.folder} holds {index.kind}, not tokens; text is packed without --images")
        return index

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(self.index().parts)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), self.path)

    def load(self, split: str) -> Windows:
        """A part, opened but not read."""
        index = self.index()
        name = chosen(split, sorted(index.parts), self.path)
        if said := index.other_vocabulary(self.folder):
            raise BadInput(said)
        shards = index.part(name)
        return Windows(
            [mapped(self.folder / s.file, index.dtype, s.values) for s in shards],
            self.context,
            self.rows,
            vocabulary=int(index.vocabulary["size"]),
            limit=self.limit,
            fingerprint=index.fingerprint(name),
            names=[str(self.folder / s.file) for s in shards],
        )

    def document(self, split: str, number: int) -> np.ndarray:
        """The tokens of one document, its end token with them."""
        index = self.index()
        name = chosen(split, sorted(index.parts), self.path)
        start = tokens = documents = 0  # where the next document begins; what the shards so far hold
        for shard in index.part(name):
            ends = mapped(self.folder / shard.ends, "<u8", shard.items)
            at = number - documents
            if 0 <= at < shard.items:
                begin = tokens + int(ends[at - 1]) if at else start
                return replace(self, context=1, rows=1, limit=None).load(name).window(begin, tokens + int(ends[at]))
            start = tokens + int(ends[-1]) if shard.items else start
            tokens, documents = tokens + shard.values, documents + shard.items
        raise BadInput(f"{self.path} has {documents} documents in {name}, numbered from 0; there is no {number}")

    def bytes(self, split: str) -> int:
        """How long the text of a part is in UTF-8, to count a loss by the byte; the breaks between documents aside."""
        index = self.index()
        name = chosen(split, sorted(index.parts), self.path)
        return int(index.made.get("bytes", {}).get(name, 0))

    def text(self) -> Text:
        """The vocabulary the tokens are numbers of."""
        from regard.tokens.text import Text

        return Text.load(self.folder)


class Windows:
    """Rows over arrays of tokens that stand for one long text, which may be memory maps; see above for how."""

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        context: int,
        rows: int,
        vocabulary: int | None = None,
        limit: int | None = None,
        fingerprint: str | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.parts = [part for part in parts if len(part)]
        self.names = [name for name, part in zip(names, parts, strict=True) if len(part)] if names else []
        self.begins = np.cumsum([0, *map(len, self.parts)]).tolist()
        self.context, self.rows, self.vocabulary = context, rows, vocabulary
        if context < 1 or rows < 1:
            raise BadInput(f"a batch of {rows} rows of {context} tokens holds nothing; give 1 or more of both")
        self.tokens = int(self.begins[-1])
        if limit is not None:
            self.tokens = min(self.tokens, limit * context + 1)
        if self.tokens <= context:
            raise BadInput(
                f"there are {self.tokens} tokens, but a row takes {context + 1}: lower data.context, or pack more text"
            )
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        """The rows of an epoch; one less in some, since the offset differs."""
        return (self.tokens - 1) // self.context

    @cached_property
    def _read(self) -> str:
        """The fingerprint of arrays that have no index: of every token."""
        from hashlib import blake2b

        found = blake2b(digest_size=8)
        for part in self.parts:
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def fingerprint(self) -> str:
        """A few letters that change when the tokens do; of shards, from the index alone."""
        return self._fingerprint or self._read

    def stream(self, seed: int) -> Stream[Tokens]:
        """Training batches without end."""
        return Stream(lambda epoch: _Epoch(self, mixed(seed, epoch)), self.collate, predicted)

    def in_order(self, tokens: int, most: int | None = None) -> Iterator[Tokens]:
        """Every token once, in order, some `tokens` in a batch: for measuring, where luck is to play no part.

        The last row is filled up with nothing to be predicted. With `most`, only so many rows, spread evenly.
        """
        count = -(-(self.tokens - 1) // self.context)
        rows = np.arange(count) if most is None or most >= count else np.arange(most) * count // most
        some = max(1, tokens // self.context)
        for at in range(0, len(rows), some):
            yield self.collate(torch.from_numpy(rows[at : at + some] * self.context))

    def collate(self, starts: Int[Tensor, " B"]) -> Tokens:
        """The rows that begin at these tokens."""
        n = self.context
        inputs = np.zeros((len(starts), n), np.int64)
        targets = np.full((len(starts), n), NOTHING, np.int64)
        for row, start in enumerate(starts.tolist()):
            window = self.window(start, min(start + n + 1, self.tokens))
            inputs[row, : len(window)] = window[:n]
            targets[row, : len(window) - 1] = window[1:]
        if self.vocabulary is not None and max(inputs.max(), targets.max()) >= self.vocabulary:
            self._complain(starts)
        return Tokens(torch.from_numpy(inputs), torch.from_numpy(targets))

    def _complain(self, starts: Int[Tensor, " B"]) -> None:
        """A token that is none: better said here than by a device that has lost its head."""
        for start in starts.tolist():
            worst = int(self.window(start, min(start + self.context + 1, self.tokens)).max())
            if worst >= (self.vocabulary or 0):
                where = self.names[self._part(start)] if self.names else "the array"
                raise BadInput(
                    f"{where} holds the token {worst}, but the vocabulary has {self.vocabulary}: it is damaged; "
                    f"regard data check looks at every file"
                )

    def window(self, start: int, end: int) -> np.ndarray:
        """The tokens from start to end, out of one part or several."""
        part = self._part(start)
        first = self.parts[part][start - self.begins[part] : end - self.begins[part]]
        if len(first) == end - start:
            return first
        return np.concatenate([first, self.window(start + len(first), end)])

    def _part(self, start: int) -> int:
        return bisect_right(self.begins, start) - 1


class _Epoch:
    """The batches of one epoch, as the tokens their rows begin at; those left over at the end wait for another."""

    def __init__(self, windows: Windows, key: int) -> None:
        n = windows.context
        self.rows, self.context = windows.rows, n
        self.offset = key % min(n, windows.tokens - n)  # whatever it is, a row is left
        self.shuffle = Shuffle((windows.tokens - 1 - self.offset) // n, key)

    def __len__(self) -> int:
        return max(1, self.shuffle.size // self.rows)  # all there are, where that is less than a batch

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        places = np.arange(i * self.rows, min((i + 1) * self.rows, self.shuffle.size))
        return torch.from_numpy(self.offset + self.shuffle(places) * self.context)


def predicted(batch: Tokens) -> int:
    """How many tokens the model is asked to predict."""
    return wanted(batch.targets)


def wanted(targets: Tensor) -> int:
    """How many targets are to be predicted."""
    host = targets.device.type == "cpu"
    there = (targets.numpy() if host else targets) != NOTHING
    return int(there.sum())  # by NumPy on the host: torch would start threads of its own in each that makes batches


def located(path: str) -> Path:
    """The folder of some shards: a path, or a name among the datasets."""
    folder = Path(path).expanduser()
    try:
        return folder if folder.is_dir() else home.folder(path)
    except BadInput:
        raise BadInput(
            f"there is no folder of shards '{path}', here or among the datasets; regard data pack makes one"
        ) from None


def chosen(name: str, known: Sequence[str], where: str) -> str:
    """The part meant by a name or by the beginning of one."""
    found = [name] if name in known else [k for k in known if k.startswith(name)]
    if len(found) != 1:
        hint = f"which of {', '.join(found)}?" if found else nearest(name, known)
        raise UnknownName(f"{where} has no part '{name}'; {hint}")
    return found[0]


def mapped(file: Path, dtype: str, values: int) -> np.ndarray:
    """So many values of a file, read when they are looked at."""
    if not values:  # an empty file cannot be mapped
        return np.zeros(0, DTYPES.get(dtype, dtype))
    try:
        return np.memmap(file, DTYPES.get(dtype, dtype), "r", shape=(values,)).view(np.ndarray)  # cheaper to slice
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
