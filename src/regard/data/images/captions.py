"""Pictures with captions: batches, splits, and the words of a caption.

    CaptionBatch    pictures (bytes B C Y X, or annotation vectors B M D) and one caption each, <s> ... </s>, padded
    CaptionSplit    one split: a row for every caption, so that a picture with five captions occurs five times an epoch

Captions are lower-cased and lose their punctuation, in training as in evaluation. In training every second picture is
mirrored where `flip` is on; which ones depends on (seed, row) alone. Row numbers continue over epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.data.base import DatasetSplit, TensorBatch
from regard.data.batching import LengthBucketedBatches, OffsetBatches, mix_seed
from regard.data.ragged import RaggedTensor
from regard.tokens.word_tokenizer import split_words

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class CaptionBatch(TensorBatch):
    """Pictures and captions, padded on the right."""

    pictures: UInt8[Tensor, "B C Y X"] | Float[Tensor, "B M D"]
    target: Int[Tensor, "B S"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]


class PictureSource(Protocol):
    """The pictures of one split, by number."""

    def __call__(self, numbers: Int[Tensor, " B"], flipped: Bool[Tensor, " B"]) -> Tensor:
        """Return pictures, some of them mirrored, as the field `pictures` of a batch."""
        ...

    def contents(self) -> Iterable[np.ndarray]:
        """Return arrays that change whenever a picture does."""
        ...


class CaptionSplit(DatasetSplit[CaptionBatch]):
    """One split. `captions` has the captions of every picture; those of more than `max_length` words are cut."""

    def __init__(
        self,
        pictures: PictureSource,
        captions: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        batch_size: int,
        max_length: int,
        flip: bool,
    ) -> None:
        self.pictures, self.captions, self.tokenizer = pictures, captions, tokenizer
        self.batch_size, self.flip = batch_size, flip
        self.picture_of = torch.tensor([n for n, several in enumerate(captions) for _ in several])
        ids = tokenizer.encode([clean_caption(each) for several in captions for each in several])
        self.tokens = RaggedTensor.from_rows([[tokenizer.bos, *row[:max_length], tokenizer.eos] for row in ids])

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def references(self) -> list[list[str]]:
        """The captions of every picture, as they are compared with what a model writes."""
        return [[clean_caption(each) for each in several] for several in self.captions]

    def order(self, seed: int, epoch: int) -> OffsetBatches:
        batches = LengthBucketedBatches(self.tokens.lengths, self.batch_size, mix_seed(seed, epoch))
        return OffsetBatches(batches, epoch * len(self))

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> CaptionBatch:
        flipped = torch.tensor([self.flip and mix_seed(seed, row) % 2 == 1 for row in rows.tolist()])
        return self._batch(rows % len(self), flipped)

    def collate(self, rows: Int[Tensor, " B"]) -> CaptionBatch:
        return self._batch(rows, torch.zeros(len(rows), dtype=torch.bool))

    def count(self, batch: CaptionBatch) -> int:
        return count_words(batch)

    def picture_batches(self, rows: int) -> Iterator[Tensor]:
        """Yield every picture once, in order, `rows` at a time."""
        for numbers in torch.arange(len(self.captions)).split(rows):
            yield self.pictures(numbers, torch.zeros(len(numbers), dtype=torch.bool))

    def contents(self) -> Iterable[Tensor | np.ndarray]:
        return (self.tokens.values, self.tokens.lengths, self.picture_of, *self.pictures.contents())

    def _batch(self, rows: Int[Tensor, " B"], flipped: Bool[Tensor, " B"]) -> CaptionBatch:
        target, lengths = self.tokens.pad(rows, self.tokenizer.pad)
        return CaptionBatch(self.pictures(self.picture_of[rows], flipped), target, lengths)


def count_words(batch: CaptionBatch) -> int:
    """Return the number of targets: the words and the end of each caption."""
    return int(batch.target_lengths.sum()) - len(batch.target_lengths)


def clean_caption(caption: str) -> str:
    """Return the words of a caption in lower case, without punctuation, separated by spaces."""
    return " ".join(word for word in split_words(caption.lower()) if any(map(str.isalnum, word)))


def check_captions(captions: Sequence[str], name: str) -> None:
    """Raise an error unless a picture has captions with words."""
    if not captions or not all(isinstance(each, str) and clean_caption(each) for each in captions):
        raise BadInput(f"{name} needs at least one caption, each with at least one word; got {list(captions)!r:.80}")
