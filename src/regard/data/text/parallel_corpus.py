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

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.batching import BatchStream, TokenBatches
from regard.data.ragged import RaggedTensor, round_up
from regard.data.text import moses

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


class PairBatch(NamedTuple):
    """A batch of sentence pairs, padded on the right."""

    source: Int[Tensor, "B N"]
    source_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]

    def to(self, device: torch.device | str) -> PairBatch:
        """The same batch on a device; from pinned memory without waiting for it."""
        return PairBatch(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> PairBatch:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return PairBatch(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> PairBatch:
        """Only the first n pairs (the padding stays)."""
        return PairBatch(*(x[:n] for x in self))


@dataclass(frozen=True)
class ParallelCorpus:
    """Which pairs, how they are written as numbers, and how many go into a batch."""

    corpus: str = "multi30k"  # a dataset's name, or the path of a folder
    source: str = "en"
    target: str = "de"
    style: Literal["raw", "moses"] = "raw"  # moses: tokenised and lower-case
    tokenizer: str = "bytes"  # of vocabulary, see tokens.tokenizer
    vocab_size: int = 8000
    batch_tokens: int = 4096  # in a batch: rows x the longest of either side
    max_length: int = 128  # longer training pairs are left out
    pad_to_multiple_of: int = 8  # padded lengths are multiples of this: few shapes, aligned rows
    limit: int | None = None  # only the first so many pairs of every part

    def quick(self) -> ParallelCorpus:
        """A few pairs and a small vocabulary: enough to see that everything runs."""
        return replace(self, limit=64, vocab_size=min(self.vocab_size, 400), batch_tokens=min(self.batch_tokens, 512))

    def splits(self) -> list[str]:
        """The parts there are for this pair of languages."""
        return sorted(_splits(data_dir.find_dataset(self.corpus), self.source, self.target))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        known = self.splits()
        found = [name] if name in known else [k for k in known if k.startswith(name)]
        if len(found) != 1:
            where = f"{self.corpus} {self.source}-{self.target}"
            hint = f"which of {', '.join(found)}?" if found else did_you_mean(name, known)
            raise UnknownName(f"{where} has no part '{name}'; {hint}")
        return found[0]

    def read(self, split: str) -> tuple[list[str], list[str]]:
        """The raw lines of a part, source and target."""
        source, target = _read(data_dir.find_dataset(self.corpus), self.split(split), self.source, self.target)
        return source[: self.limit], target[: self.limit]

    def preprocess(self, lines: Iterable[str], language: str) -> list[str]:
        """Lines as the model is to see them."""
        return moses.tokenize(lines, language) if self.style == "moses" else [line.strip() for line in lines]

    def load(self, split: str, tokenizer: Tokenizer | None = None) -> ParallelSplit:
        """A part as numbers; trains the vocabulary on it where none is given."""
        raw = self.read(split)
        sides = self.preprocess(raw[0], self.source), self.preprocess(raw[1], self.target)
        if tokenizer is None:
            from regard.tokens.tokenizer import Tokenizer

            tokenizer = Tokenizer.train(
                [line for side in sides for line in side], kind=self.tokenizer, size=self.vocab_size
            )
        source = encode_lines(tokenizer, sides[0], [], [tokenizer.eos])
        return ParallelSplit(
            self,
            self.split(split),
            tokenizer,
            source,
            encode_lines(tokenizer, sides[1], [tokenizer.bos], [tokenizer.eos]),
        )


class PairBatchSettings(Protocol):
    """What batches of pairs are made by."""

    @property
    def batch_tokens(self) -> int:
        """In a batch: rows x the longest of either side."""
        ...

    @property
    def max_length(self) -> int:
        """Longer training pairs are left out."""
        ...

    @property
    def pad_to_multiple_of(self) -> int:
        """Padded lengths are multiples of this."""
        ...


class EncodedPairs:
    """Pairs as numbers, and the batches of them, whatever the two sides are."""

    settings: PairBatchSettings
    tokenizer: Tokenizer
    source: RaggedTensor
    target: RaggedTensor

    def __len__(self) -> int:
        return len(self.source)

    def usable(self) -> Int[Tensor, " rows"]:
        """The rows to train on: neither side empty, neither longer than `max_length`."""
        s, t = self.source.lengths, self.target.lengths
        return ((s > 1) & (t > 2) & (s <= self.settings.max_length) & (t <= self.settings.max_length)).nonzero()[:, 0]

    def collate(self, rows: Int[Tensor, " B"]) -> PairBatch:
        """These rows as one padded batch."""
        source = self.source.pad(rows, self.tokenizer.pad, self.settings.pad_to_multiple_of)
        # One more than a multiple: the decoder reads all but the last token, and that is then the aligned length.
        target, lengths = self.target.pad(rows, self.tokenizer.pad)
        wanted = round_up(target.shape[1] - 1, self.settings.pad_to_multiple_of) + 1
        target = torch.nn.functional.pad(target, (0, wanted - target.shape[1]), value=self.tokenizer.pad)
        return PairBatch(*source, target, lengths)

    def stream(self, seed: int) -> BatchStream[PairBatch]:
        """Training batches without end."""
        rows = self.usable()
        source, target = self.source.lengths[rows], self.target.lengths[rows] - 1

        def order(epoch: int) -> TokenBatches:
            return TokenBatches(
                source,
                target,
                tokens=self.settings.batch_tokens,
                seed=seed,
                epoch=epoch,
                multiple=self.settings.pad_to_multiple_of,
            )

        return BatchStream(order, lambda picked: self.collate(rows[picked]), count_target_tokens)

    def eval_batches(self, tokens: int) -> Iterator[PairBatch]:
        """Every row once, sorted by length: for measuring, where order and luck are to play no part."""
        longest = torch.maximum(self.source.lengths, self.target.lengths)
        order = torch.sort(longest, descending=True, stable=True).indices
        at = 0
        while at < len(order):
            rows = max(1, tokens // round_up(int(longest[order[at]]), self.settings.pad_to_multiple_of))
            yield self.collate(order[at : at + rows])
            at += rows


@dataclass(frozen=True, eq=False)
class ParallelSplit(EncodedPairs):
    """One part of the data as numbers; as text it is read again when asked for."""

    settings: ParallelCorpus
    split: str
    tokenizer: Tokenizer
    source: RaggedTensor
    target: RaggedTensor

    @cached_property
    def raw(self) -> tuple[list[str], list[str]]:
        """Source and target as in the file."""
        return self.settings.read(self.split)

    @cached_property
    def sides(self) -> tuple[list[str], list[str]]:
        """Source and target as the model sees them."""
        settings = self.settings
        return settings.preprocess(self.raw[0], settings.source), settings.preprocess(self.raw[1], settings.target)


def count_target_tokens(batch: PairBatch) -> int:
    """How many tokens the model is asked to predict: all of the target but its begin token."""
    return int(batch.target_lengths.sum()) - len(batch.target_lengths)


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str], before: list[int], after: list[int]) -> RaggedTensor:
    """All lines as numbers; some at a time, since Python's numbers take far more room than a tensor's."""
    some = range(0, max(len(lines), 1), 10_000)
    return RaggedTensor.concat(
        [
            RaggedTensor.from_rows([[*before, *ids, *after] for ids in tokenizer.encode(list(lines[at : at + 10_000]))])
            for at in some
        ]
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
        first, second = read_lines(files[0]), read_lines(files[1])
        if len(first) != len(second):
            raise BadInput(f"{files[0]} has {len(first)} lines, {files[1].name} has {len(second)}: they are not pairs")
        return first, second
    rows = [line.split("\t") for line in read_lines(files[0])]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise BadInput(f"{files[0]}, line {number}: {len(row)} columns; wanted source<TAB>target")
    columns = [row[0] for row in rows], [row[1] for row in rows]
    return columns if files[0].name.startswith(f"{source}-") else columns[::-1]


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; only a line feed ends one (a few hold other Unicode line breaks)."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    return text.removesuffix("\n").split("\n") if text else []
