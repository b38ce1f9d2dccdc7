"""Lines of handwriting as pen offsets (dx, dy, pen lifted after this point), with their text.

    uji         digit strings, composed from the digits of one writer each (UJIpenchars2: 60 writers, every digit twice)
    omniglot    lines of drawn characters out of 50 alphabets, without text (30,000 training drawings)

A row is composed on demand from (seed, epoch, row) alone: characters, writer, gaps, and in training a random slant,
size and width. Offsets are in units of `unit` character heights, so that most are about 1 long. Splits share no writer
(uji) or are those of the source (omniglot).

Llorens et al.: The UJIpenchars Database. LREC 2008 (CC BY 4.0). Lake, Salakhutdinov, Tenenbaum: Human-level Concept
Learning through Probabilistic Program Induction. Science 2015; as strokes by Ha and Eck, arXiv:1704.03477
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import Float, Int, Tensor
from regard.data import data_dir
from regard.data.base import Dataset, DatasetSplit, TensorBatch, resolve_split
from regard.data.batching import LengthBucketedBatches, OffsetBatches, mix_seed
from regard.data.strokes.pen_strokes import Character, HandwritingStyle, compose_line, read_omniglot, read_uji

CORPORA = {"uji": read_uji, "omniglot": read_omniglot}
ALPHABETS = {"uji": "0123456789", "omniglot": ""}  # characters of the texts
SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class StrokeBatch(TensorBatch):
    """A batch of lines, padded on the right."""

    points: Float[Tensor, "B T 3"]  # dx, dy, 1 where the pen is lifted after the point
    lengths: Int[Tensor, " B"]
    text: Int[Tensor, "B U"]  # letter numbers, then the end
    text_lengths: Int[Tensor, " B"]  # with the end; 0 where there is no text


@dataclass(frozen=True)
class HandwritingLines(Dataset):
    """Settings of the dataset."""

    corpus: str = "uji"
    spacing: float = field(0.12, low=0)  # distance of points along a stroke, in character heights; 0: as recorded
    unit: float = field(0.12, above=0)  # unit of the offsets, in character heights
    min_length: int = 1  # characters per line
    max_length: int = 6
    lines_per_epoch: int = 2048  # an eighth as many for validation and for test
    batch_size: int = 32  # rows per batch over all processes
    variation: float = field(1.0, low=0)  # random variation of slant, size and width in training; 0: none

    def __post_init__(self) -> None:
        if self.corpus not in CORPORA:
            raise UnknownName(f"there is no stroke corpus '{self.corpus}'; {did_you_mean(self.corpus, CORPORA)}")
        if not 1 <= self.min_length <= self.max_length:
            raise BadInput(
                f"data.min_length={self.min_length}, data.max_length={self.max_length}: need 1 <= min <= max"
            )
        if self.spacing < 0 or self.unit <= 0:
            raise BadInput(
                f"data.spacing={self.spacing}, data.unit={self.unit}: spacing must be 0 or more, unit above 0"
            )

    quick_settings = {"lines_per_epoch": 16, "batch_size": 4, "max_length": 2, "min_length": 1}  # noqa: RUF012

    @property
    def letters(self) -> str:
        """The characters of the texts; empty if lines have no text."""
        return ALPHABETS[self.corpus]

    def splits(self) -> list[str]:
        self.characters("val")
        return sorted(SPLITS)

    def split(self, name: str) -> str:
        return resolve_split(name, sorted(SPLITS), self.corpus)

    def characters(self, split: str) -> list[Character]:
        """Return the characters of a split."""
        return _read(data_dir.find_dataset("pen_strokes"), self.corpus, self.split(split), self.spacing)

    def load(self, split: str) -> HandwritingSplit:
        part = self.split(split)
        is_training = part == "train"
        lines = self.lines_per_epoch if is_training else max(4, self.lines_per_epoch // 8)
        return HandwritingSplit(
            replace(self, lines_per_epoch=lines, variation=self.variation if is_training else 0.0), part
        )


class HandwritingSplit(DatasetSplit[StrokeBatch]):
    """The lines of a split. Row epoch · lines + i is the i-th line of an epoch."""

    def __init__(self, settings: HandwritingLines, part: str) -> None:
        self.settings, self.key = settings, SPLITS.index(part)
        self.all = settings.characters(part)
        # writer -> label -> character indices
        self.by_writer: dict[int, dict[int, list[int]]] = {}
        for i, character in enumerate(self.all):
            self.by_writer.setdefault(character.writer, {}).setdefault(character.label, []).append(i)
        self.points = np.array([len(character.points) for character in self.all])
        self._epoch = lru_cache(maxsize=2)(self._choose_characters)

    def __len__(self) -> int:
        return self.settings.lines_per_epoch

    def contents(self) -> Iterable[np.ndarray]:
        for character in self.all:
            yield from (character.points, character.pen_up, np.array([character.label], np.uint8))

    def order(self, seed: int, epoch: int) -> OffsetBatches:
        lengths, batch_size = self.lengths(seed, epoch), self.settings.batch_size
        return OffsetBatches(LengthBucketedBatches(lengths, batch_size, mix_seed(seed, epoch)), epoch * len(self))

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> StrokeBatch:
        return self.collate(rows, seed)

    def count(self, batch: StrokeBatch) -> int:
        return int(batch.lengths.sum())

    def collate(self, rows: Int[Tensor, " B"], seed: int = 0) -> StrokeBatch:
        lines = [self.line(row, seed) for row in rows.tolist()]
        end = len(self.settings.letters)
        lengths = torch.tensor([len(points) for points, _ in lines])
        text_lengths = torch.tensor([len(text) for _, text in lines])
        points = torch.zeros(len(lines), int(lengths.max()), 3)
        text = torch.full((len(lines), int(text_lengths.max())), end)
        for i, (line_points, letter_ids) in enumerate(lines):
            points[i, : len(line_points)] = torch.from_numpy(line_points)
            text[i, : len(letter_ids)] = torch.tensor(letter_ids, dtype=torch.long)
        return StrokeBatch(points, lengths, text, text_lengths)

    def line(self, row: int, seed: int = 0) -> tuple[np.ndarray, list[int]]:
        """Return one line: offsets T 3, and its letter numbers with the end (empty without text)."""
        epoch, i = divmod(row, len(self))
        characters = [self.all[j] for j in self._epoch((seed, epoch))[i]]
        rng = np.random.default_rng([self.key, mix_seed(seed, epoch), i])
        offsets = compose_line(characters, HandwritingStyle.random(rng, len(characters), self.settings.variation))
        offsets[:, :2] /= self.settings.unit
        text = [character.label for character in characters]
        return offsets, [*text, len(self.settings.letters)] if self.settings.letters else []

    def lengths(self, seed: int, epoch: int) -> Int[Tensor, " rows"]:
        """Return the number of points of every line of an epoch, without composing them."""
        return torch.tensor([1 + self.points[chosen].sum() for chosen in self._epoch((seed, epoch))])

    def _choose_characters(self, seed_and_epoch: tuple[int, int]) -> list[Sequence[int]]:
        """Choose the characters of each line of an epoch: a writer, a length, letters, and one sample of each."""
        s = self.settings
        rng = np.random.default_rng([self.key, mix_seed(*seed_and_epoch)])
        writers = sorted(self.by_writer)
        found: list[Sequence[int]] = []
        for _ in range(len(self)):
            by_label = self.by_writer[writers[rng.integers(len(writers))]]
            labels = sorted(by_label)
            letters = rng.integers(len(labels), size=rng.integers(s.min_length, s.max_length + 1))
            found.append([by_label[labels[w]][rng.integers(len(by_label[labels[w]]))] for w in letters])
        return found


@lru_cache(maxsize=8)
def _read(folder: Path, corpus: str, part: str, spacing: float) -> list[Character]:
    return CORPORA[corpus](folder, part, spacing)
