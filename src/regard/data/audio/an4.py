"""AN4: read names, addresses, numbers and commands as frames of mel cepstra, about 48 minutes.

    mfcc (13) + deltas (13) + delta-deltas (13) = 39 features, 100 frames per second; normalised per recording
    "P I T T S B U R G H"  "TWO SIX EIGHT FOUR FOUR ONE EIGHT"  "ENTER SIX TWO FOUR"

Only the cepstra computed by Sphinx are available, not the audio. The split into 948 training and 130 test recordings is
the official one; a fixed tenth of the former is for validation. After subsampling by 4 every recording still has as
many frames as CTC needs for its letters, after 8 it may not.

CMU Speech Group: the AN4 (census) database, 1991
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import data_dir
from regard.data.audio.speech_batch import SpeechBatch, batch_by_frames, collate_speech, count_targets, spec_augment
from regard.data.base import Dataset
from regard.data.batching import BatchStream, LengthBucketedBatches, mix_seed
from regard.data.text.labeled_text import fill_missing_splits
from regard.tokens.frames import append_deltas, normalize_features

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class AN4(Dataset):
    """Settings of the dataset: batches and SpecAugment masks."""

    corpus: str = "an4"  # or the path of such a folder
    tokenizer: str = "char"  # char or word
    batch_size: int = 32  # rows per batch over all processes
    deltas: int = field(2, low=0, high=2)  # 1: add deltas, 2: also delta-deltas
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


class AN4Split:
    """One split: recordings as normalised frames, and their transcripts."""

    def __init__(self, settings: AN4, rows: Sequence[tuple[np.ndarray, str]], tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.rows = [
            (
                append_deltas(normalize_features(torch.from_numpy(frames.astype(np.float32))), settings.deltas),
                transcript,
            )
            for frames, transcript in rows
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def fingerprint(self) -> str:
        found = blake2b(digest_size=8)
        for frames, transcript in self.rows:
            found.update(frames.numpy().data)
            found.update(repr(self.tokenizer.encode_one(transcript)).encode())
        return found.hexdigest()

    def stream(self, seed: int) -> BatchStream[SpeechBatch]:
        """Return endless training batches; row numbers continue over epochs, so that masks differ."""
        size, lengths = len(self), torch.tensor([len(frames) for frames, _ in self.rows])

        def order(epoch: int) -> LengthBucketedBatches:
            found = LengthBucketedBatches(lengths, self.settings.batch_size, mix_seed(seed, epoch))
            found.batches = [batch + epoch * size for batch in found.batches]
            return found

        def collate(rows: Int[Tensor, " B"]) -> SpeechBatch:
            return self.batch([self.training_example(mix_seed(seed, row), row % size) for row in rows.tolist()])

        return BatchStream(order, collate, count_targets)

    def training_example(self, key: int, row: int) -> tuple[Float[Tensor, "T F"], str]:
        """Return a recording with SpecAugment masks that depend on the key."""
        s, (frames, transcript) = self.settings, self.rows[row]
        rng = np.random.default_rng(key)
        return spec_augment(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), transcript

    def eval_batches(self, frames: int) -> Iterator[SpeechBatch]:
        """Yield every recording once, longest first, about `frames` frames per batch."""
        yield from batch_by_frames(sorted(self.rows, key=lambda one: -len(one[0])), frames, self.batch)

    def batch(self, rows: Sequence[tuple[Tensor, str]]) -> SpeechBatch:
        return collate_speech([frames for frames, _ in rows], [transcript for _, transcript in rows], self.tokenizer)


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
