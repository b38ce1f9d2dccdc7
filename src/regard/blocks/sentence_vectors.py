"""Sentence vectors: the sum of a sentence's word vectors, weighted by the place of each word.

    vector      s = Σ_j l_j ⊙ A x_j                           word x_j, j of J
    weights     l_kj = (1 - j/J) - (k/d)(1 - 2j/J)            number k of d; j and k from 1        O(J d)

Without l a sentence is a bag of words. The weights are lines in k, so that two weighted sums of word vectors are enough
for all numbers. Padding and unknown words are zero; padding does not count in J.

Sukhbaatar, Szlam, Weston, Fergus: End-To-End Memory Networks. NeurIPS 2015. arXiv:1503.08895 (position encoding)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from regard.core.shapes import Float, Int, Tensor
from regard.tokens.story_words import PAD, UNKNOWN


def sentence_vectors(
    words: Int[Tensor, "N W"], table: Float[Tensor, "V tables D"], scale: float = 1.0
) -> Float[Tensor, "N tables D"]:
    """Return the vectors of sentences, by every table of word vectors; `scale` is a factor of all weights."""
    slopes, offsets = position_encoding_lines(words != PAD, table.dtype)
    width = table.shape[-1]
    k = torch.arange(1, width + 1, device=words.device, dtype=table.dtype)
    both = torch.cat([table, k / width * table]).flatten(1)
    known = torch.where(words > UNKNOWN, words, PAD)
    again = torch.where(words > UNKNOWN, words + len(table), PAD)
    number, length = words.shape  # not len: it fixes a program of torch.export
    # of a matrix, embedding_bag computes these itself, by a division that fixes it as well
    starts = torch.arange(number, device=words.device) * (2 * length)
    bags = F.embedding_bag(
        torch.cat([known, again], 1).flatten(),
        both,
        starts,
        mode="sum",
        per_sample_weights=scale * torch.cat([offsets, slopes], 1).flatten(),
        padding_idx=PAD,
    )
    return bags.unflatten(1, table.shape[1:])


def move_padding_last(words: Int[Tensor, "N W"]) -> Int[Tensor, "N W"]:
    """Return rows with all words first, in their order, then all padding (ONNX has no stable sort)."""
    real = words != PAD
    place = torch.where(real, real.cumsum(1), real.sum(1, keepdim=True) + (~real).cumsum(1)) - 1
    return torch.zeros_like(words).scatter(1, place, words)


def position_encoding_lines(real: Tensor, dtype: torch.dtype) -> tuple[Float[Tensor, "N W"], Float[Tensor, "N W"]]:
    """Return slopes and offsets of the position encoding of every word, l_kj = offset_j + (k/d) slope_j.

    The encoding is a line in k, so that two weighted sums of word vectors are enough for all of its numbers.
    """
    j = real.cumsum(1).to(dtype) / real.sum(1, keepdim=True).clamp(min=1)
    return (2 * j - 1) * real, (1 - j) * real
