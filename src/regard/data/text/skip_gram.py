"""Context windows and negative samples for word2vec, computed from counters.

    subsampling   of frequent words before windows are cut; a word of frequency f is kept with min(1, √(t/f) + t/f)
    windows       1 to W words to each side, uniformly: near words are seen more often than far ones
    negatives     with probability ~ frequency^power (an alias table: two lookups per sample)

All three are sampled anew in every epoch. Every sample is a hash of (seed, epoch, position), so a batch does not depend
on the batches before it, the threads that make it, or the processes that share it.

Mikolov, Sutskever, Chen, Corrado, Dean: Distributed Representations of Words and Phrases. NeurIPS 2013. arXiv:1310.4546
Walker: An Efficient Method for Generating Discrete Random Variables (alias tables). ACM TOMS 1977
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.base import TensorBatch
from regard.data.batching import BatchStream, mix_seed
from regard.data.ragged import RaggedTensor
from regard.data.shuffle import random_bits

NO_WORD = -1  # no word at this position of a window


@dataclass(frozen=True, eq=False)
class ContextWindowBatch(TensorBatch):
    """A batch of words with their contexts and negative samples."""

    words: Int[Tensor, " B"]
    contexts: Int[Tensor, "B W"]  # -1: none
    negatives: Int[Tensor, "B K"]


class ContextWindows:
    """The windows of a text of token ids. Words with a count of 0 are skipped, as if they were not there."""

    def __init__(
        self,
        text: RaggedTensor,
        counts: np.ndarray,  # count of every word in the training text; 0: unknown
        *,
        batch_size: int,
        window: int = 5,
        negatives: int = 5,
        sample: float = 1e-3,
        power: float = 0.75,
        seed: int = 0,
    ) -> None:
        if min(batch_size, window, negatives) < 1:
            raise BadInput(f"window={window}, negatives={negatives} and batch_size={batch_size} must be 1 or more")
        words = text.values.numpy()
        owner = np.repeat(np.arange(len(text), dtype=np.int32), text.lengths.numpy())
        real = counts[words] > 0
        self.words, self.owner = words[real], owner[real]
        if len(self.words) < 2:
            raise BadInput("the text has fewer than two known words")
        self.keep = keep_probability(counts, sample)
        self.draw = AliasTable(np.where(counts > 0, counts.astype(np.float64) ** power, 0.0))
        self.size, self.window, self.negatives, self.seed = batch_size, window, negatives, seed
        self._epoch = lru_cache(maxsize=2)(self._subsample)

    @property
    def tokens(self) -> int:
        """The number of known words, before subsampling."""
        return len(self.words)

    def stream(self) -> BatchStream[ContextWindowBatch]:
        return BatchStream(lambda epoch: _Order(self, epoch), self.collate, lambda batch: len(batch.words))

    def eval_batches(self, most: int | None = None) -> Iterator[ContextWindowBatch]:
        """Yield the windows of the first epoch in order, at most `most` of them spread evenly."""
        count = len(self._epoch(0).words)
        rows = np.arange(count) if most is None or most >= count else np.arange(most) * count // most
        for at in range(0, len(rows), self.size):
            yield self.collate(torch.from_numpy(rows[at : at + self.size]))

    def collate(self, rows: Int[Tensor, " B"]) -> ContextWindowBatch:
        """Return the windows of rows: epoch · tokens + position in the subsampled text of this epoch."""
        epoch, places = int(rows[0]) // self.tokens, rows.numpy() % self.tokens
        text, key = self._epoch(epoch), mix_seed(self.seed, epoch)
        reach = 1 + random_bits(key + 1, places) % np.uint64(self.window)
        offsets = np.concatenate([np.arange(-self.window, 0), np.arange(1, self.window + 1)])
        at = places[:, None] + offsets
        np.clip(at, 0, len(text.words) - 1, out=at)
        is_context = text.owner[at] == text.owner[places][:, None]
        is_context &= np.abs(offsets) <= reach[:, None].astype(np.int64)
        is_context &= at == places[:, None] + offsets  # beyond either end of the text
        contexts = np.where(is_context, text.words[at], NO_WORD)
        each = places[:, None] * self.negatives + np.arange(self.negatives)
        found = text.words[places], contexts, self.draw(random_bits(key + 2, each))
        return ContextWindowBatch(*(torch.from_numpy(x.astype(np.int64)) for x in found))

    def _subsample(self, epoch: int) -> _SubsampledText:
        chance = random_bits(mix_seed(self.seed, epoch), np.arange(self.tokens)) >> np.uint64(11)
        stays = chance * 2.0**-53 < self.keep[self.words]
        if stays.sum() < 2:
            stays[:] = True
        return _SubsampledText(self.words[stays], self.owner[stays])


@dataclass(frozen=True, eq=False)
class _SubsampledText:
    """The words kept in an epoch, and the sentence of each."""

    words: np.ndarray
    owner: np.ndarray


class _Order:
    """Batches of an epoch: its words, shuffled."""

    def __init__(self, windows: ContextWindows, epoch: int) -> None:
        count = len(windows._epoch(epoch).words)
        generator = torch.Generator().manual_seed(mix_seed(windows.seed, epoch))
        self.places = torch.randperm(count, generator=generator) + epoch * windows.tokens
        self.size = windows.size

    def __len__(self) -> int:
        return -(-len(self.places) // self.size)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.places[i * self.size : (i + 1) * self.size]


class AliasTable:
    """Weighted sampling: column i is i itself up to `share[i]`, and `other[i]` beyond it."""

    def __init__(self, weights: np.ndarray) -> None:
        if not len(weights) or weights.min() < 0 or not weights.sum() > 0:
            raise BadInput("weights must not be negative nor all zero")
        scaled = weights / weights.sum() * len(weights)
        self.share, self.other = np.ones(len(weights)), np.arange(len(weights))
        small, large = [*np.flatnonzero(scaled < 1)], [*np.flatnonzero(scaled >= 1)]
        left = scaled.copy()
        while small and large:
            i, j = small.pop(), large[-1]
            self.share[i], self.other[i] = left[i], j
            left[j] -= 1 - left[i]
            if left[j] < 1:
                small.append(large.pop())

    def __call__(self, bits: np.ndarray) -> np.ndarray:
        """Return a number for each random 64-bit number: the upper half chooses the column, the lower half the side."""
        column = ((bits >> np.uint64(32)) * np.uint64(len(self.share)) >> np.uint64(32)).astype(np.int64)
        side = (bits & np.uint64(2**32 - 1)) * 2.0**-32
        return np.where(side < self.share[column], column, self.other[column])


def keep_probability(counts: np.ndarray, sample: float) -> np.ndarray:
    """Return the probability of keeping each word, as in the authors' program; `sample` 0 keeps all."""
    frequency = counts / max(counts.sum(), 1)
    if not sample:
        return np.ones(len(counts))
    with np.errstate(divide="ignore"):
        share = np.where(frequency > 0, sample / frequency, np.inf)
    return np.minimum(1.0, np.sqrt(share) + share)
