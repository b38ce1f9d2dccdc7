"""Sentence pairs: Multi30k, Tatoeba, or a folder of the user's own in either of their two layouts.

    <split>.<language>[.gz]              one sentence a line, line i of both files is a pair      (Multi30k)
    <source>-<target>.<split>.tsv[.gz]   source<TAB>target                                        (Tatoeba)

Both sides share one vocabulary, trained on the training part of both. Every source ends in the end token, every target
begins with the begin token and ends in the end token:

    source   a dog runs </s>        target   <s> ein hund läuft </s>
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch

from regard.core.errors import BadInput, UnknownName, nearest
from regard.core.shapes import Int, Tensor
from regard.data import home, moses
from regard.data.batching import Stream, TokenBatches
from regard.data.flat import Flat, rounded

if TYPE_CHECKING:
    from regard.tokens.text import Text


class Pairs(NamedTuple):
    """A batch of sentence pairs, padded on the right."""

    source: Int[Tensor, "B N"]
    source_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]

    def to(self, device: torch.device | str) -> Pairs:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Pairs(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Pairs:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Pairs(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Pairs:
        """Only the first n pairs (the padding stays)."""
        return Pairs(*(x[:n] for x in self))


@dataclass(frozen=True)
class Parallel:
    """Which pairs, how they are written as numbers, and how many go into a batch."""

    corpus: str = "multi30k"  # a dataset's name, or the path of a folder
    source: str = "en"
    target: str = "de"
    style: Literal["raw", "moses"] = "raw"  # moses: tokenised and lower-case
    kind: str = "bytes"  # of vocabulary, see tokens.text
    vocabulary: int = 8000
    tokens: int = 4096  # in a batch: rows x the longest of either side
    longest: int = 128  # longer training pairs are left out
    multiple: int = 8  # padded lengths are multiples of this: few shapes, aligned rows
    limit: int | None = None  # only the first so many pairs of every part

    def quick(self) -> Parallel:
        """A few pairs and a small vocabulary: enough to see that everything runs."""
        return replace(self, limit=64, vocabulary=min(self.vocabulary, 400), tokens=min(self.tokens, 512))

    def splits(self) -> list[str]:
        """The parts there are for this pair of languages."""
        return sorted(_splits(home.folder(self.corpus), self.source, self.target))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        known = self.splits()
        found = [name] if name in known else [k for k in known if k.startswith(name)]
        if len(found) != 1:
            where = f"{self.corpus} {self.source}-{self.target}"
            hint = f"which of {', '.join(found)}?" if found else nearest(name, known)
            raise UnknownName(f"{where} has no part '{name}'; {hint}")
        return found[0]

    def read(self, split: str) -> tuple[list[str], list[str]]:
        """The raw lines of a part, source and target."""
        source, target = _read(home.folder(self.corpus), self.split(split), self.source, self.target)
        return source[: self.limit], target[: self.limit]

    def normal(self, lines: Iterable[str], language: str) -> list[str]:
        """Lines as the model is to see them."""
        return moses.tokenise(lines, language) if self.style == "moses" else [line.strip() for line in lines]

    def load(self, split: str, text: Text | None = None) -> Corpus:
        """A part as numbers; trains the vocabulary on it where none is given."""
        raw = self.read(split)
        sides = self.normal(raw[0], self.source), self.normal(raw[1], self.target)
        if text is None:
            from regard.tokens.text import Text

            text = Text.train([line for side in sides for line in side], kind=self.kind, size=self.vocabulary)
        source = encoded(text, sides[0], [], [text.eos])
        return Corpus(self, self.split(split), text, source, encoded(text, sides[1], [text.bos], [text.eos]))


class Sizes(Protocol):
    """What batches of pairs are made by."""

    @property
    def tokens(self) -> int:
        """In a batch: rows x the longest of either side."""
        ...

    @property
    def longest(self) -> int:
        """Longer training pairs are left out."""
        ...

    @property
    def multiple(self) -> int:
        """Padded lengths are multiples of this."""
        ...


class Numbered:
    """Pairs as numbers, and the batches of them, whatever the two sides are."""

    settings: Sizes
    text: Text
    source: Flat
    target: Flat

    def __len__(self) -> int:
        return len(self.source)

    def usable(self) -> Int[Tensor, " rows"]:
        """The rows to train on: neither side empty, neither longer than `longest`."""
        s, t = self.source.lengths, self.target.lengths
        return ((s > 1) & (t > 2) & (s <= self.settings.longest) & (t <= self.settings.longest)).nonzero()[:, 0]

    def collate(self, rows: Int[Tensor, " B"]) -> Pairs:
        """These rows as one padded batch."""
        source = self.source.padded(rows, self.text.pad, self.settings.multiple)
        # One more than a multiple: the decoder reads all but the last token, and that is then the aligned length.
        target, lengths = self.target.padded(rows, self.text.pad)
        wanted = rounded(target.shape[1] - 1, self.settings.multiple) + 1
        target = torch.nn.functional.pad(target, (0, wanted - target.shape[1]), value=self.text.pad)
        return Pairs(*source, target, lengths)

    def stream(self, seed: int) -> Stream[Pairs]:
        """Training batches without end."""
        rows = self.usable()
        source, target = self.source.lengths[rows], self.target.lengths[rows] - 1

        def order(epoch: int) -> TokenBatches:
            return TokenBatches(
                source, target, tokens=self.settings.tokens, seed=seed, epoch=epoch, multiple=self.settings.multiple
            )

        return Stream(order, lambda picked: self.collate(rows[picked]), target_tokens)

    def in_order(self, tokens: int) -> Iterator[Pairs]:
        """Every row once, sorted by length: for measuring, where order and luck are to play no part."""
        longest = torch.maximum(self.source.lengths, self.target.lengths)
        order = torch.sort(longest, descending=True, stable=True).indices
        at = 0
        while at < len(order):
            rows = max(1, tokens // rounded(int(longest[order[at]]), self.settings.multiple))
            yield self.collate(order[at : at + rows])
            at += rows


@dataclass(frozen=True, eq=False)
class Corpus(Numbered):
    """One part of the data as numbers; as text it is read again when asked for."""

    settings: Parallel
    split: str
    text: Text
    source: Flat
    target: Flat

    @cached_property
    def raw(self) -> tuple[list[str], list[str]]:
        """Source and target as in the file."""
        return self.settings.read(self.split)

    @cached_property
    def sides(self) -> tuple[list[str], list[str]]:
        """Source and target as the model sees them."""
        settings = self.settings
        return settings.normal(self.raw[0], settings.source), settings.normal(self.raw[1], settings.target)


def target_tokens(batch: Pairs) -> int:
    """How many tokens the model is asked to predict: all of the target but its begin token."""
    return int(batch.target_lengths.sum()) - len(batch.target_lengths)


def encoded(text: Text, lines: Sequence[str], before: list[int], after: list[int]) -> Flat:
    """All lines as numbers; some at a time, since Python's numbers take far more room than a tensor's."""
    some = range(0, max(len(lines), 1), 10_000)
    return Flat.joined(
        [Flat.of([[*before, *ids, *after] for ids in text.encode(list(lines[at : at + 10_000]))]) for at in some]
    )


def _splits(folder: Path, source: str, target: str) -> dict[str, tuple[Path, ...]]:
    """The parts of a folder: name -> its file (both sides in one) or its two files."""
    found: dict[str, tuple[Path, ...]] = {}
    for path in sorted(folder.iterdir()):
        parts = path.name.removesuffix(".gz").split(".")
        if len(parts) == 3 and parts[2] == "tsv" and parts[0] in (f"{source}-{target}", f"{target}-{source}"):
            found[parts[1]] = (path,)
        elif len(parts) == 2 and parts[1] == source:
            for other in (folder / f"{parts[0]}.{target}", folder / f"{parts[0]}.{target}.gz"):
                if other.is_file():
                    found[parts[0]] = (path, other)
    if not found:
        raise BadInput(
            f"{folder} holds no {source}-{target} pairs; wanted: train.{source}[.gz] with train.{target}[.gz], "
            f"or {source}-{target}.train.tsv[.gz]"
        )
    return found


def _read(folder: Path, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    files = _splits(folder, source, target)[split]
    if len(files) == 2:
        first, second = lines(files[0]), lines(files[1])
        if len(first) != len(second):
            raise BadInput(f"{files[0]} has {len(first)} lines, {files[1].name} has {len(second)}: they are not pairs")
        return first, second
    rows = [line.split("\t") for line in lines(files[0])]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise BadInput(f"{files[0]}, line {number}: {len(row)} columns; wanted source<TAB>target")
    columns = [row[0] for row in rows], [row[1] for row in rows]
    return columns if files[0].name.startswith(f"{source}-") else columns[::-1]


def lines(path: Path) -> list[str]:
    """The lines of a text file; only a line feed ends one (a few hold other Unicode line breaks)."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    return text.removesuffix("\n").split("\n") if text else []
