"""AN4: read names, addresses, numbers and commands as frames of mel cepstra, about 48 minutes.

    mfcc (13) + deltas (13) + delta-deltas (13) = 39 features, 100 frames per second; normalised per recording
    "P I T T S B U R G H"  "TWO SIX EIGHT FOUR FOUR ONE EIGHT"  "ENTER SIX TWO FOUR"

Only the cepstra computed by Sphinx are available, not the audio. The split into 948 training and 130 test recordings is
the official one; a fixed tenth of the former is for validation. After subsampling by 4 every recording still has as
many frames as CTC needs for its letters, after 8 it may not.

CMU Speech Group: the AN4 (census) database, 1991
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import data_dir
from regard.data.audio.speech_batch import Example, SpeechSplit, spec_augment
from regard.data.base import Dataset
from regard.data.text.labeled_text import fill_missing_splits
from regard.tokens.frames import append_deltas, normalize_features

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SPLITS = ("train", "val", "test")
SPEEDS = (9, 10, 11)  # tenths of the original speed


@dataclass(frozen=True)
class AN4(Dataset):
    """Settings of the dataset: batches and SpecAugment masks."""

    corpus: str = "an4"  # or the path of such a folder
    tokenizer: str = "char"  # char or word
    batch_size: int = 32  # rows per batch over all processes
    deltas: int = field(2, low=0, high=2)  # 1: add deltas, 2: also delta-deltas
    speed_perturbation: bool = False  # in training, a third 10 % slower and a third 10 % faster, frames interpolated
    time_masks: int = field(2, low=0)  # masks per recording
    time_width: int = field(20, low=0)  # largest width in frames
    mel_masks: int = field(2, low=0)
    mel_width: int = field(4, low=0)  # largest width in features
    limit: int | None = None  # use only the first recordings of every split

    quick_settings = {"limit": 16, "batch_size": 8}  # noqa: RUF012

    def splits(self) -> list[str]:
        data_dir.find_dataset(self.corpus)  # raises if it is missing
        return super().splits()

    @property
    def features(self) -> int:
        return 13 * (1 + self.deltas)

    @property
    def preprocess(self) -> None:
        """AN4 comes as frames; there is no audio to preprocess."""

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer of the letters (or words) of the training split."""
        from regard.tokens.tokenizer import Tokenizer

        return Tokenizer.train(
            [transcript for _, transcript in read_recordings(self.corpus)["train"]], kind=self.tokenizer, size=200
        )

    def load(self, split: str, tokenizer: Tokenizer) -> AN4Split:
        """Return a split as frames and transcripts."""
        return AN4Split(self, read_recordings(self.corpus)[self.split(split)][: self.limit], tokenizer)


class AN4Split(SpeechSplit):
    """One split: recordings as normalised frames, and their transcripts."""

    def __init__(self, settings: AN4, rows: Sequence[tuple[np.ndarray, str]], tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer, self.batch_size = settings, tokenizer, settings.batch_size
        self.rows = rows
        self.examples = [(self._features(cepstra), transcript) for cepstra, transcript in rows]

    def _features(self, cepstra: np.ndarray, speed: int = 10) -> Float[Tensor, "T F"]:
        x = change_speed(torch.from_numpy(cepstra.astype(np.float32)), speed)
        return append_deltas(normalize_features(x), self.settings.deltas)

    def __len__(self) -> int:
        return len(self.examples)

    def contents(self) -> Iterable[Tensor | np.ndarray]:
        for frames, transcript in self.examples:
            yield frames
            yield np.frombuffer(repr(self.tokenizer.encode_one(transcript)).encode(), np.uint8)

    def lengths(self, seed: int, epoch: int) -> Int[Tensor, " rows"]:
        return torch.tensor([len(frames) for frames, _ in self.examples])

    def training_example(self, row: int, key: int) -> Example:
        """Return a recording at a speed, with SpecAugment masks."""
        s, (frames, transcript) = self.settings, self.examples[row]
        rng = np.random.default_rng(key)
        if s.speed_perturbation and (speed := int(np.random.default_rng([key, 1]).choice(SPEEDS))) != 10:
            frames = self._features(self.rows[row][0], speed)
        return spec_augment(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), transcript


def change_speed(x: Float[Tensor, "T F"], speed: int) -> Float[Tensor, "N F"]:
    """Return the frames of a recording at a speed in tenths, interpolated linearly: 11 is 10 % faster.

    There are no samples to resample, so the pitch stays.
    """
    if speed == 10:
        return x
    many = max(1, round(len(x) * 10 / speed))
    return F.interpolate(x.T[None], many, mode="linear", align_corners=False)[0].T


@lru_cache(maxsize=2)
def read_recordings(corpus: str) -> dict[str, list[tuple[np.ndarray, str]]]:
    """Return cepstra T 13 and transcript of every recording, by split."""
    file = data_dir.find_dataset(corpus) / "an4_mfcc.npz"
    try:
        arrays = np.load(file)
        found = {split: _split_recordings(arrays, split) for split in ("train", "test")}
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{file} is not a file of AN4 recordings: {error}") from None
    return fill_missing_splits(found, corpus, 0)


def _split_recordings(arrays: np.lib.npyio.NpzFile, split: str) -> list[tuple[np.ndarray, str]]:
    frames, offsets = arrays[f"{split}_mfcc"], arrays[f"{split}_offsets"]
    transcript = [str(text) for text in arrays[f"{split}_text"]]
    return [(frames[a:b], text) for (a, b), text in zip(pairwise(offsets), transcript, strict=True)]
