"""Batches of recordings with their transcripts, and SpecAugment.

    batch          frames B T F, padded with zeros, and targets <s> ... </s>, padded as well
    spec_augment   stripes of time and of features set to the mean, which is zero (without time warping)

Park, Chan, Zhang, Chiu, Zoph, Cubuk, Le: SpecAugment. Interspeech 2019. arXiv:1904.08779
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.shapes import Float, Int, Tensor
from regard.data.base import TensorBatch
from regard.data.ragged import round_up

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

PAD_TO_MULTIPLE_OF = 8  # padded lengths are multiples of this


@dataclass(frozen=True, eq=False)
class SpeechBatch(TensorBatch):
    """Recordings as frames, and their transcripts, padded on the right."""

    frames: Float[Tensor, "B T F"]
    frame_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B S"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]


def collate_speech(
    frames: Sequence[Float[Tensor, "_ F"]], transcripts: Sequence[str], tokenizer: Tokenizer
) -> SpeechBatch:
    """Collate recordings and transcripts."""
    ids = [[tokenizer.bos, *numbers, tokenizer.eos] for numbers in tokenizer.encode(list(transcripts))]
    lengths = torch.tensor([len(row) for row in ids])
    target = torch.full((len(ids), int(lengths.max())), tokenizer.pad)
    for place, row in zip(target, ids, strict=True):
        place[: len(row)] = torch.tensor(row)
    return SpeechBatch(*pad_frames(frames), target, lengths)


def pad_frames(frames: Sequence[Float[Tensor, "_ F"]]) -> tuple[Float[Tensor, "B T F"], Int[Tensor, " B"]]:
    """Return recordings padded on the right to the longest (rounded up), and their lengths."""
    lengths = torch.tensor([len(one) for one in frames])
    wide = frames[0].new_zeros(len(frames), round_up(int(lengths.max()), PAD_TO_MULTIPLE_OF), frames[0].shape[1])
    for row, one in zip(wide, frames, strict=True):
        row[: len(one)] = one
    return wide, lengths


def batch_by_frames(
    rows: Sequence[tuple[Tensor, str]], frames: int, batch: Callable[[Sequence[tuple[Tensor, str]]], SpeechBatch]
) -> Iterator[SpeechBatch]:
    """Batch rows that are sorted by length, longest first, about `frames` frames per batch."""
    at = 0
    while at < len(rows):
        rows_per_batch = max(1, frames // round_up(len(rows[at][0]), PAD_TO_MULTIPLE_OF))
        yield batch(rows[at : at + rows_per_batch])
        at += rows_per_batch


def count_targets(batch: SpeechBatch) -> int:
    """Return the number of targets: the words (or letters) and the end of each recording."""
    return int(batch.target_lengths.sum()) - len(batch.target_lengths)


def spec_augment(
    x: Float[Tensor, "T F"], times: int, width: int, mels: int, high: int, rng: np.random.Generator
) -> Float[Tensor, "T F"]:
    """Set stripes to zero: of time, together at most a fifth, and of features."""
    x = x.clone()
    for count, widest, side in ((times, min(width, len(x) // (5 * max(times, 1))), x), (mels, high, x.T)):
        for _ in range(count):
            size = int(rng.integers(0, min(widest, len(side)) + 1))
            start = int(rng.integers(0, len(side) - size + 1))
            side[start : start + size] = 0.0
    return x
