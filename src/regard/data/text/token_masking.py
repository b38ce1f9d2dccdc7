"""Masked language modelling: 15 % of the tokens are chosen anew each time a text is read; of those

    80 %    become [MASK]
    10 %    become a random word of the vocabulary
    10 %    stay as they are, and are predicted all the same

so that a model can never be sure of a word it sees. Special tokens (and unknown words) are neither chosen nor inserted.
Everything is a hash of the row's key: a row is the same in whatever batch.

    positions   B M    positions to predict; M is the same for every batch, so that shapes are fixed
    targets     B M    the original tokens; -100 where a row has fewer than M

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, section 3.1 and appendix A.1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard.core.shapes import Int, Tensor
from regard.data.base import TensorBatch
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.shuffle import GOLDEN_GAMMA, splitmix64

MASKED_FRACTION = 0.15  # of the tokens
MASK_FRACTION, RANDOM_FRACTION = 0.8, 0.1  # of the chosen tokens

_U64 = np.uint64


@dataclass(frozen=True, eq=False)
class MaskedBatch(TensorBatch):
    """A batch of texts with masked tokens."""

    tokens: Int[Tensor, "B N"]  # [CLS] a [SEP] b [SEP], padded on the right
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    masked_positions: Int[Tensor, "B M"]
    targets: Int[Tensor, "B M"]  # IGNORE_INDEX where a row has fewer
    next_sentence_labels: Int[Tensor, " B"]  # 0: b follows a; 1: it does not; IGNORE_INDEX: there is no b


def max_masked(length: int) -> int:
    """Return the most masked tokens of a row of this length."""
    return max(1, round(MASKED_FRACTION * (length - 2)))


def mask_tokens(
    tokens: np.ndarray, keys: np.ndarray, special: np.ndarray, mask: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mask rows: return tokens B N as the model sees them, the positions B M and the original tokens there B M.

    `special` is True for each token id that is not a word, `keys` has a number for each row.
    """
    rows, length = tokens.shape
    most = max_masked(length)
    maskable = ~special[tokens]
    noise = keyed_random_bits(keys[:, None], np.arange(length))
    noise[~maskable] = ~_U64(0)
    at = noise.argsort(1)[:, :most]
    many = np.clip(np.rint(MASKED_FRACTION * maskable.sum(1)), 1, most)
    chosen = (np.arange(most) < many[:, None]) & np.take_along_axis(maskable, at, 1)
    at = np.where(chosen, at, 0)
    targets = np.where(chosen, np.take_along_axis(tokens, at, 1), IGNORE_INDEX)
    random_values = bits_to_unit(keyed_random_bits(keys[:, None], length + np.arange(most)))
    words = np.flatnonzero(~special)
    other = words[
        bits_to_range(keyed_random_bits(keys[:, None], length + most + np.arange(most)), np.array(len(words)))
    ]
    replacement = np.where(
        random_values < MASK_FRACTION, mask, np.where(random_values < MASK_FRACTION + RANDOM_FRACTION, other, targets)
    )
    seen = tokens.copy()
    row = np.broadcast_to(np.arange(rows)[:, None], at.shape)
    seen[row[chosen], at[chosen]] = replacement[chosen]
    return seen, at, targets


def keyed_random_bits(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return 64 random bits for every key and number."""
    with np.errstate(over="ignore"):  # overflow is intended
        return splitmix64(splitmix64(keys.astype(_U64)) + numbers.astype(_U64) * _U64(GOLDEN_GAMMA))


def bits_to_unit(bits: np.ndarray) -> np.ndarray:
    """Map random bits to numbers in [0, 1)."""
    found: np.ndarray = (bits >> _U64(11)) * 2.0**-53
    return found


def bits_to_range(bits: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Map random bits to whole numbers from 0 to `most` - 1; 0 if `most` is 0."""
    found: np.ndarray = (bits % np.maximum(most, 1).astype(_U64)).astype(np.int64)
    return found
