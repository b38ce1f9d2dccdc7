"""AN4: read names, addresses, numbers and commands as frames of mel cepstra, about 48 minutes.

    mfcc (13) + slopes (13) + slopes of slopes (13) = 39 numbers, 100 frames a second; normalised over each recording
    "P I T T S B U R G H"  "TWO SIX EIGHT FOUR FOUR ONE EIGHT"  "ENTER SIX TWO FOUR"

The sounds themselves are not there, only the cepstra that Sphinx made of them. The split into 948 recordings to train
on and 130 to test is the official one; every tenth of the former, in an order of its own, is for validation. After two
halvings every recording still has as many frames as its letters need, after three it may not.

CMU Speech Group: the AN4 (census) database, 1991
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import data_dir
from regard.data.audio.speech_batch import SpeechBatch, batch_by_frames, collate_speech, count_targets, spec_augment
from regard.data.batching import BatchStream, LengthBucketedBatches, mix_seed
from regard.data.shards.token_shards import resolve_split
from regard.data.text.labeled_text import fill_missing_splits
from regard.tokens.frames import LogMelSpectrogram, append_deltas, normalize_features

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class AN4:
    """How recordings become batches, and what is hidden of them in training."""

    corpus: str = "an4"  # or the path of a folder like it
    tokenizer: str = "char"  # of vocabulary: char or word
    batch_size: int = 32  # in a batch, all processes together
    deltas: int = 2  # 1: slopes too, 2: slopes of slopes too
    time_masks: int = 2  # stripes hidden of each recording
    time_width: int = 20  # frames at most
    mel_masks: int = 2
    mel_width: int = 4  # features at most
    limit: int | None = None  # only the first so many recordings of every part

    def quick(self) -> AN4:
        """A few recordings: enough to see that everything runs."""
        return replace(self, limit=16, batch_size=min(self.batch_size, 8))

    def splits(self) -> list[str]:
        """The parts there are."""
        data_dir.find_dataset(self.corpus)
        return sorted(SPLITS)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return resolve_split(name, self.splits(), self.corpus)

    @property
    def features(self) -> int:
        """Numbers a frame."""
        return 13 * (1 + self.deltas)

    @property
    def front(self) -> LogMelSpectrogram | None:
        """How frames are made of sounds: not by us."""
        return None

    def build_tokenizer(self) -> Tokenizer:
        """The letters of the training part, or its words."""
        from regard.tokens.tokenizer import Tokenizer

        return Tokenizer.train(
            [said for _, said in read_recordings(self.corpus)["train"]], kind=self.tokenizer, size=200
        )

    def load(self, split: str, tokenizer: Tokenizer) -> AN4Split:
        """A part as frames and words."""
        return AN4Split(self, read_recordings(self.corpus)[self.split(split)][: self.limit], tokenizer)


class AN4Split:
    """One part: recordings as normalised frames, and what is said in them."""

    def __init__(self, settings: AN4, rows: Sequence[tuple[np.ndarray, str]], tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer = settings, tokenizer
        self.rows = [
            (append_deltas(normalize_features(torch.from_numpy(frames.astype(np.float32))), settings.deltas), said)
            for frames, said in rows
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def fingerprint(self) -> str:
        """A few letters that change when the recordings or the vocabulary do."""
        found = blake2b(digest_size=8)
        for frames, said in self.rows:
            found.update(frames.numpy().data)
            found.update(repr(self.tokenizer.encode_one(said)).encode())
        return found.hexdigest()

    def stream(self, seed: int) -> BatchStream[SpeechBatch]:
        """Training batches without end; a row's number counts through all epochs, for what is hidden of it."""
        many, lengths = len(self), torch.tensor([len(frames) for frames, _ in self.rows])

        def order(epoch: int) -> LengthBucketedBatches:
            found = LengthBucketedBatches(lengths, self.settings.batch_size, mix_seed(seed, epoch))
            found.batches = [batch + epoch * many for batch in found.batches]
            return found

        def collate(rows: Int[Tensor, " B"]) -> SpeechBatch:
            return self.batch([self.training_example(mix_seed(seed, row), row % many) for row in rows.tolist()])

        return BatchStream(order, collate, count_targets)

    def training_example(self, key: int, row: int) -> tuple[Float[Tensor, "T F"], str]:
        """A recording to train on: with stripes hidden, which depend on the key."""
        s, (frames, said) = self.settings, self.rows[row]
        rng = np.random.default_rng(key)
        return spec_augment(frames, s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng), said

    def eval_batches(self, frames: int) -> Iterator[SpeechBatch]:
        """Every recording once, longest first, about so many frames at a time."""
        yield from batch_by_frames(sorted(self.rows, key=lambda one: -len(one[0])), frames, self.batch)

    def batch(self, rows: Sequence[tuple[Tensor, str]]) -> SpeechBatch:
        """Some recordings side by side."""
        return collate_speech([frames for frames, _ in rows], [said for _, said in rows], self.tokenizer)


@lru_cache(maxsize=2)
def read_recordings(corpus: str) -> dict[str, list[tuple[np.ndarray, str]]]:
    """Cepstra T 13 and words of every recording, by part."""
    file = data_dir.find_dataset(corpus) / "an4_mfcc.npz"
    try:
        held = np.load(file)
        found = {part: _split_recordings(held, part) for part in ("train", "test")}
    except (OSError, KeyError, ValueError) as error:
        raise BadInput(f"{file} holds no recordings of AN4: {error}") from None
    return fill_missing_splits(found, corpus, 0)


def _split_recordings(held: np.lib.npyio.NpzFile, part: str) -> list[tuple[np.ndarray, str]]:
    frames, offsets = held[f"{part}_mfcc"], held[f"{part}_offsets"]
    said = [str(text) for text in held[f"{part}_text"]]
    return [(frames[a:b], text) for (a, b), text in zip(pairwise(offsets), said, strict=True)]
