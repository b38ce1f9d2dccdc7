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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.base import DatasetSplit, TensorBatch
from regard.data.batching import mix_seed
from regard.data.ragged import RaggedTensor
from regard.data.shuffle import random_bits

NO_WORD = -1  # no word at this position of a window


@dataclass(frozen=True, eq=False)
class ContextWindowBatch(TensorBatch):
    """A batch of words with their contexts and negative samples."""

    words: Int[Tensor, " B"]
    contexts: Int[Tensor, "B W"]  # -1: none
    negatives: Int[Tensor, "B K"]


class ContextWindows(DatasetSplit[ContextWindowBatch]):
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
    ) -> None:
        if min(batch_size, window, negatives) < 1:
            raise BadInput(f"window={window}, negatives={negatives} and batch_size={batch_size} must be 1 or more")
        words = text.values.numpy()
        sentence = np.repeat(np.arange(len(text), dtype=np.int32), text.lengths.numpy())
        is_known = counts[words] > 0
        self.words, self.sentence = words[is_known], sentence[is_known]
        if len(self.words) < 2:
            raise BadInput("the text has fewer than two known words")
        self.keep = keep_probability(counts, sample)
        self.sample_negatives = AliasTable(np.where(counts > 0, counts.astype(np.float64) ** power, 0.0))
        self.batch_size, self.window, self.negatives = batch_size, window, negatives
        self.subsampled = lru_cache(maxsize=2)(self._subsample)

    def __len__(self) -> int:
        """Return the number of known words, before subsampling."""
        return len(self.words)

    def contents(self) -> Iterable[np.ndarray]:
        return self.words, self.sentence

    def order(self, seed: int, epoch: int) -> _EpochBatches:
        count = len(self.subsampled(seed, epoch).words)
        generator = torch.Generator().manual_seed(mix_seed(seed, epoch))
        return _EpochBatches(torch.randperm(count, generator=generator) + epoch * len(self), self.batch_size)

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> ContextWindowBatch:
        return self.collate(rows, seed)

    def eval_batches(self, max_rows: int | None = None) -> Iterator[ContextWindowBatch]:
        """Yield the windows of the first epoch in order, or `max_rows` of them spread evenly."""
        count = len(self.subsampled(0, 0).words)
        rows = torch.arange(count)
        if max_rows is not None and max_rows < count:
            rows = torch.arange(max_rows) * count // max_rows
        for numbers in rows.split(self.batch_size):
            yield self.collate(numbers)

    def collate(self, rows: Int[Tensor, " B"], seed: int = 0) -> ContextWindowBatch:
        """Return the windows of rows: epoch · words + position in the subsampled text of this epoch."""
        epoch, positions = int(rows[0]) // len(self), rows.numpy() % len(self)
        text, key = self.subsampled(seed, epoch), mix_seed(seed, epoch)
        reach = 1 + random_bits(key + 1, positions) % np.uint64(self.window)
        offsets = np.concatenate([np.arange(-self.window, 0), np.arange(1, self.window + 1)])
        index = positions[:, None] + offsets
        np.clip(index, 0, len(text.words) - 1, out=index)
        is_context = text.sentence[index] == text.sentence[positions][:, None]
        is_context &= np.abs(offsets) <= reach[:, None].astype(np.int64)
        is_context &= index == positions[:, None] + offsets  # beyond either end of the text
        contexts = np.where(is_context, text.words[index], NO_WORD)
        counters = positions[:, None] * self.negatives + np.arange(self.negatives)
        arrays = text.words[positions], contexts, self.sample_negatives(random_bits(key + 2, counters))
        return ContextWindowBatch(*(torch.from_numpy(x.astype(np.int64)) for x in arrays))

    def _subsample(self, seed: int, epoch: int) -> _SubsampledText:
        chance = random_bits(mix_seed(seed, epoch), np.arange(len(self))) >> np.uint64(11)
        is_kept = chance * 2.0**-53 < self.keep[self.words]
        if is_kept.sum() < 2:
            is_kept[:] = True
        return _SubsampledText(self.words[is_kept], self.sentence[is_kept])


@dataclass(frozen=True, eq=False)
class _SubsampledText:
    """The words kept in an epoch, and the sentence of each."""

    words: np.ndarray
    sentence: np.ndarray


class _EpochBatches:
    """Row numbers in batches; the last one may be smaller."""

    def __init__(self, rows: Int[Tensor, " rows"], batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.rows[i * self.batch_size : (i + 1) * self.batch_size]


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
