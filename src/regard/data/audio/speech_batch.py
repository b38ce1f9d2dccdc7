"""Batches and splits of recordings with their transcripts, and SpecAugment.

    SpeechBatch    frames B T F, padded with zeros, and targets <s> ... </s>, padded as well
    spec_augment   stripes of time and of features set to the mean, which is zero (without time warping)

Park, Chan, Zhang, Chiu, Zoph, Cubuk, Le: SpecAugment. Interspeech 2019. arXiv:1904.08779
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.shapes import Float, Int, Tensor
from regard.data.base import DatasetSplit, TensorBatch, longest_first
from regard.data.batching import LengthBucketedBatches, OffsetBatches, mix_seed
from regard.data.ragged import round_up

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

PAD_TO_MULTIPLE_OF = 8  # padded lengths are multiples of this

Example = tuple[Float[Tensor, "T F"], str]  # frames and transcript


@dataclass(frozen=True, eq=False)
class SpeechBatch(TensorBatch):
    """Recordings as frames, and their transcripts, padded on the right."""

    frames: Float[Tensor, "B T F"]
    frame_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B S"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]


class SpeechSplit(DatasetSplit[SpeechBatch]):
    """A split of recordings; training batches have recordings of similar length, evaluation takes the longest first.

    Subclasses define `examples`, `lengths` and `training_example`. Row numbers continue over epochs, so that the
    augmentation of a recording differs in every epoch.
    """

    tokenizer: Tokenizer
    examples: Sequence[Example]  # those of an evaluation

    def lengths(self, seed: int, epoch: int) -> Int[Tensor, " rows"]:
        """Return the length of every training example of an epoch, in any unit."""
        raise NotImplementedError

    def training_example(self, row: int, key: int) -> Example:
        """Return row `row` of an epoch; random choices depend on `key` alone."""
        raise NotImplementedError

    def order(self, seed: int, epoch: int) -> OffsetBatches:
        batches = LengthBucketedBatches(self.lengths(seed, epoch), self.batch_size, mix_seed(seed, epoch))
        return OffsetBatches(batches, epoch * len(self))

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> SpeechBatch:
        return self._batch([self.training_example(row % len(self), mix_seed(seed, row)) for row in rows.tolist()])

    def collate(self, rows: Int[Tensor, " B"]) -> SpeechBatch:
        return self._batch([self.examples[row] for row in rows.tolist()])

    def count(self, batch: SpeechBatch) -> int:
        return count_targets(batch)

    def eval_batches(self, frames: int) -> Iterator[SpeechBatch]:
        """Yield every recording once, longest first, about `frames` frames per batch."""
        lengths = torch.tensor([len(recording) for recording, _ in self.examples])
        for rows in longest_first(lengths, frames, PAD_TO_MULTIPLE_OF):
            yield self.collate(rows)

    def _batch(self, examples: Sequence[Example]) -> SpeechBatch:
        frames, transcripts = zip(*examples, strict=True)
        return collate_speech(frames, transcripts, self.tokenizer)


def collate_speech(
    frames: Sequence[Float[Tensor, "_ F"]], transcripts: Sequence[str], tokenizer: Tokenizer
) -> SpeechBatch:
    """Collate recordings and transcripts."""
    ids = [[tokenizer.bos, *numbers, tokenizer.eos] for numbers in tokenizer.encode(list(transcripts))]
    lengths = torch.tensor([len(row) for row in ids])
    target = torch.full((len(ids), int(lengths.max())), tokenizer.pad)
    for padded, row in zip(target, ids, strict=True):
        padded[: len(row)] = torch.tensor(row)
    return SpeechBatch(*pad_frames(frames), target, lengths)


def pad_frames(frames: Sequence[Float[Tensor, "_ F"]]) -> tuple[Float[Tensor, "B T F"], Int[Tensor, " B"]]:
    """Return recordings padded on the right to the longest (rounded up), and their lengths."""
    lengths = torch.tensor([len(recording) for recording in frames])
    padded = frames[0].new_zeros(len(frames), round_up(int(lengths.max()), PAD_TO_MULTIPLE_OF), frames[0].shape[1])
    for row, recording in zip(padded, frames, strict=True):
        row[: len(recording)] = recording
    return padded, lengths


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
