"""Sentence pairs: Multi30k, Tatoeba, or a folder in either of their two layouts.

    <split>.<language>[.gz]              one sentence per line, line i of both files is a pair    (Multi30k)
    <source>-<target>.<split>.tsv[.gz]   source<TAB>target                                        (Tatoeba)

Both sides share one vocabulary, trained on the training split of both. Every source ends with the end token, every
target begins with the begin token and ends with the end token:

    source   a dog runs </s>        target   <s> ein hund läuft </s>

A single table (.tsv, .csv, .jsonl, .parquet) of two columns is read too: the columns called like the languages, or the
first for the source and the second for the target; "all" is all of it. Without a validation split a part of the pairs,
chosen once, is used.

What people type is unlike a corpus. Three settings bring the training split nearer to it:

    max_targets=2    of the translations of one source, those that agree most with the others
    phrases=100      so many copies of everyday phrases (phrases.tsv: "Hello." is in few corpora)
    augment=true     other names, numbers, contractions, case and final marks in every epoch (pair_augment.py)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.base import Dataset, DatasetSplit, TensorBatch, longest_first
from regard.data.batching import BatchStream, OffsetBatches, TokenBatches, mix_seed
from regard.data.class_folders import split_rows
from regard.data.ragged import RaggedTensor, round_up
from regard.data.text import moses
from regard.data.text.pair_augment import augment_pair
from regard.data.text.table import full_rows, read_lines, read_table

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


PHRASES, LANGUAGES = Path(__file__).with_name("phrases.tsv"), ("en", "fr", "de")


@dataclass(frozen=True, eq=False)
class PairBatch(TensorBatch):
    """A batch of sentence pairs, padded on the right."""

    source: Int[Tensor, "B N"]
    source_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]


@dataclass(frozen=True)
class ParallelCorpus(Dataset):
    """Settings of the dataset."""

    corpus: str = "multi30k"  # name of a dataset, or path of a folder
    source: str = "en"
    target: str = "de"
    style: Literal["raw", "moses"] = "raw"  # moses: tokenised and lower-case
    tokenizer: str = "bytes"  # kind of tokenizer, see tokens.tokenizer
    vocab_size: int = 8000
    batch_tokens: int = 4096  # rows x the longest of either side, per batch
    max_length: int = 128  # longer training pairs are left out
    pad_to_multiple_of: int = 8  # of padded lengths: few shapes, aligned rows
    limit: int | None = None  # use only the first pairs of every split
    val_fraction: float = field(0.1, above=0, below=1)  # of the pairs, if there is no validation split
    max_targets: int | None = field(None, low=1)  # of one source in training, those that agree most with the others
    phrases: int = field(0, low=0)  # copies of every phrase of phrases.tsv (en, fr, de) in training
    augment: bool = False  # change training pairs anew in every epoch (pair_augment.py)

    quick_settings = {"limit": 64, "vocab_size": 400, "batch_tokens": 512, "phrases": 1}  # noqa: RUF012

    @property
    def table(self) -> Path | None:
        """The single file that holds all pairs, if the corpus is one."""
        path = Path(self.corpus).expanduser()
        return path if path.is_file() else None

    def splits(self) -> list[str]:
        """Return the splits of this language pair."""
        if self.table is not None:
            return ["all", "train", "val"]
        found = _splits(data_dir.find_dataset(self.corpus), self.source, self.target)
        return sorted(found.keys() | (set() if _has_val(found) else {"val"}))

    def title(self) -> str:
        return f"{self.corpus} {self.source}-{self.target}"

    def read(self, split: str) -> tuple[list[str], list[str]]:
        """Return the raw lines of a split, source and target."""
        part = self.split(split)
        if (file := self.table) is not None:
            sides, is_complete = read_pairs(file, self.source, self.target, quiet=part == "val"), part == "all"
        else:
            folder = data_dir.find_dataset(self.corpus)
            found = _splits(folder, self.source, self.target)
            sides = _read(folder, part if part in found else "train", self.source, self.target)
            is_complete = part in found and (part != "train" or _has_val(found))
        if not is_complete:
            rows = split_rows(len(sides[0]), part, self.val_fraction).tolist()
            if not rows:
                raise BadInput(
                    f"{self.corpus} has {len(sides[0])} pairs, too few to keep some for validation: add more"
                )
            sides = [sides[0][row] for row in rows], [sides[1][row] for row in rows]
        sides = sides[0][: self.limit], sides[1][: self.limit]
        return self._for_training(*sides) if part == "train" else sides

    def _for_training(self, source: list[str], target: list[str]) -> tuple[list[str], list[str]]:
        if self.max_targets is not None:
            rows = agreeing_rows(source, target, self.max_targets)
            source, target = [source[row] for row in rows], [target[row] for row in rows]
        if not self.phrases:
            return source, target
        table = read_table(PHRASES, LANGUAGES)
        if missing := {self.source, self.target} - {*table.columns}:
            raise BadInput(
                f"data.phrases={self.phrases}: there are phrases in {', '.join(table.columns)}, not in "
                f"{missing.pop()}; leave it at 0"
            )
        return source + table.column(self.source) * self.phrases, target + table.column(self.target) * self.phrases

    def preprocess(self, lines: Iterable[str], language: str) -> list[str]:
        """Return lines as the model sees them."""
        return moses.tokenize(lines, language) if self.style == "moses" else [line.strip() for line in lines]

    def load(self, split: str, tokenizer: Tokenizer | None = None) -> ParallelSplit:
        """Return a split as token ids; without a tokenizer one is trained on it."""
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
    """Settings of batches of pairs."""

    @property
    def batch_tokens(self) -> int:
        """Rows x the longest of either side, per batch."""
        ...

    @property
    def max_length(self) -> int:
        """Longer training pairs are left out."""
        ...

    @property
    def pad_to_multiple_of(self) -> int:
        """Padded lengths are multiples of this."""
        ...


class EncodedPairs(DatasetSplit[PairBatch]):
    """Pairs as token ids, and their batches."""

    settings: PairBatchSettings
    tokenizer: Tokenizer
    source: RaggedTensor
    target: RaggedTensor

    def __len__(self) -> int:
        return len(self.source)

    def usable(self) -> Int[Tensor, " rows"]:
        """Return the rows to train on: neither side empty or longer than `max_length`."""
        s, t = self.source.lengths, self.target.lengths
        return ((s > 1) & (t > 2) & (s <= self.settings.max_length) & (t <= self.settings.max_length)).nonzero()[:, 0]

    def collate(self, rows: Int[Tensor, " B"]) -> PairBatch:
        return collate_pairs(self.source, self.target, rows, self.tokenizer.pad, self.settings.pad_to_multiple_of)

    def stream(self, seed: int) -> BatchStream[PairBatch]:
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
        """Yield every row once, longest first."""
        longest = torch.maximum(self.source.lengths, self.target.lengths)
        for rows in longest_first(longest, tokens, self.settings.pad_to_multiple_of):
            yield self.collate(rows)


@dataclass(frozen=True, eq=False)
class ParallelSplit(EncodedPairs):
    """One split as token ids; its text is read again when it is needed."""

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

    def stream(self, seed: int) -> BatchStream[PairBatch]:
        plain = super().stream(seed)
        if not self.settings.augment:
            return plain
        rows = self.usable()

        def order(epoch: int) -> OffsetBatches:
            return OffsetBatches(plain.order(epoch), epoch * len(rows))

        def collate(picked: Tensor) -> PairBatch:
            keys = [mix_seed(mix_seed(seed, int(i) // len(rows)), int(i) % len(rows)) for i in picked]
            return self.collate_augmented(rows[picked % len(rows)], keys)

        return BatchStream(order, collate, count_target_tokens)

    def collate_augmented(self, rows: Int[Tensor, " B"], keys: Sequence[int]) -> PairBatch:
        """Return these rows as a batch, changed by generators with these keys."""
        settings, text = self.settings, self.tokenizer
        languages = settings.source, settings.target
        pairs = [
            augment_pair(self.sides[0][row], self.sides[1][row], random.Random(key), languages)
            for row, key in zip(rows.tolist(), keys, strict=True)
        ]
        source = encode_lines(text, [pair[0] for pair in pairs], [], [text.eos])
        target = encode_lines(text, [pair[1] for pair in pairs], [text.bos], [text.eos])
        return collate_pairs(source, target, torch.arange(len(pairs)), text.pad, settings.pad_to_multiple_of)


def agreeing_rows(source: Sequence[str], target: Sequence[str], most: int) -> list[int]:
    """Return the rows of pairs with at most so many targets of one source: those most like its others.

    Two targets are alike by the share of groups of four characters that they have in common.
    """
    rows_of: dict[str, list[int]] = {}
    for row, line in enumerate(source):
        rows_of.setdefault(line, []).append(row)
    kept = []
    for rows in rows_of.values():
        if len(rows) > most:
            groups = [{target[row][k : k + 4] for k in range(max(len(target[row]) - 3, 1))} for row in rows]
            alike = [sum(2 * len(a & b) / (len(a) + len(b)) for b in groups) for a in groups]
            rows = [
                row for _, row in sorted(zip(alike, rows, strict=True), key=lambda pair: (-pair[0], pair[1]))[:most]
            ]
        kept += rows
    return sorted(kept)


def collate_pairs(
    source: RaggedTensor, target: RaggedTensor, rows: Int[Tensor, " B"], pad: int, multiple: int
) -> PairBatch:
    """Return these rows as a padded batch; the decoder's input, all of the target but its last token, is aligned."""
    outputs, lengths = target.pad(rows, pad)
    aligned = round_up(outputs.shape[1] - 1, multiple) + 1
    outputs = torch.nn.functional.pad(outputs, (0, aligned - outputs.shape[1]), value=pad)
    return PairBatch(*source.pad(rows, pad, multiple), outputs, lengths)


def count_target_tokens(batch: PairBatch) -> int:
    """Return the number of predicted tokens: all of the target but its begin token."""
    return int(batch.target_lengths.sum()) - len(batch.target_lengths)


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str], before: list[int], after: list[int]) -> RaggedTensor:
    """Encode all lines, in chunks, since Python integers take far more memory than a tensor's."""
    some = range(0, max(len(lines), 1), 10_000)
    return RaggedTensor.concat(
        [
            RaggedTensor.from_rows([[*before, *ids, *after] for ids in tokenizer.encode(list(lines[at : at + 10_000]))])
            for at in some
        ]
    )


def _splits(folder: Path, source: str, target: str) -> dict[str, tuple[Path, ...]]:
    """Return the splits of a folder: name -> its file (both sides in one) or its two files."""
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
            f"{folder} has no {source}-{target} pairs; expected train.{source}[.gz] and train.{target}[.gz], "
            f"or {source}-{target}.train.tsv[.gz]"
        )
    return found


def _has_val(found: Iterable[str]) -> bool:
    """Whether a folder has a validation split of its own; one without a training split needs none."""
    return "train" not in found or any(name.startswith("val") for name in found)


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
            raise BadInput(f"{files[0]}, line {number}: {len(row)} columns; expected source<TAB>target")
    columns = [row[0] for row in rows], [row[1] for row in rows]
    return columns if files[0].name.startswith(f"{source}-") else columns[::-1]


def read_pairs(file: Path, source: str, target: str, quiet: bool = False) -> tuple[list[str], list[str]]:
    """Return the pairs of a table: the columns called like the languages, or the first two that are not numbers."""
    table = read_table(file, (source.lower(), target.lower()))
    if len(table.columns) < 2:
        raise BadInput(f"{file} has {len(table.columns)} column; expected two: the source and the target")
    names = [name.lower() if name.lower() in table.columns else None for name in (source, target)]
    first, second = [name for name in names if name] if all(names) else table.text_columns()[:2]
    cells = zip(table.column(first), table.column(second), strict=True)
    rows = full_rows(file, list(zip(table.lines, cells, strict=True)), ("source", "target"), quiet)
    return [pair[0] for _, pair in rows], [pair[1] for _, pair in rows]
