"""Words to be guessed: 15 of 100 tokens are chosen anew each time a text is read; of those

    80 %    become [MASK]
    10 %    become any word of the vocabulary
    10 %    stay as they are, and are asked for all the same

so that a model can never be sure of a word it sees. Special tokens (and words the vocabulary lacks) are neither chosen
nor put in. All of it is drawn by number from the row's key: a row is the same whoever makes it, in whatever company.

    at        B M    places that are asked for; M is the same for every batch, so that all shapes are
    targets   B M    what stood there; -100 where a row has fewer than M

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, section 3.1 and appendix A.1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from regard.core.shapes import Int, Tensor
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.shuffle import GOLDEN_GAMMA, splitmix64

MASKED_FRACTION = 0.15  # of the tokens
MASK_FRACTION, RANDOM_FRACTION = 0.8, 0.1  # of the chosen

_U64 = np.uint64


class MaskedBatch(NamedTuple):
    """A batch of texts with words to be guessed."""

    tokens: Int[Tensor, "B N"]  # [CLS] a [SEP] b [SEP], padded on the right
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    masked_positions: Int[Tensor, "B M"]
    targets: Int[Tensor, "B M"]  # IGNORE_INDEX where there is none
    next_sentence_labels: Int[Tensor, " B"]  # 0: b follows a; 1: it does not; IGNORE_INDEX: there is no b

    def to(self, device: torch.device | str) -> MaskedBatch:
        """The same batch on a device; from pinned memory without waiting for it."""
        return MaskedBatch(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> MaskedBatch:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return MaskedBatch(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> MaskedBatch:
        """Only the first n rows."""
        return MaskedBatch(*(x[:n] for x in self))


def max_masked(length: int) -> int:
    """How many words of a row of this length are asked for at most."""
    return max(1, round(MASKED_FRACTION * (length - 2)))


def mask_tokens(
    tokens: np.ndarray, keys: np.ndarray, special: np.ndarray, mask: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with words to be guessed: tokens B N as the model sees them, the places B M and the words there B M.

    `special` holds True for each number of the vocabulary that is no word, `keys` a number for each row.
    """
    rows, length = tokens.shape
    most = max_masked(length)
    able = ~special[tokens]
    noise = keyed_random_bits(keys[:, None], np.arange(length))
    noise[~able] = ~_U64(0)
    at = noise.argsort(1)[:, :most]
    many = np.clip(np.rint(MASKED_FRACTION * able.sum(1)), 1, most)
    asked = (np.arange(most) < many[:, None]) & np.take_along_axis(able, at, 1)
    at = np.where(asked, at, 0)
    targets = np.where(asked, np.take_along_axis(tokens, at, 1), IGNORE_INDEX)
    luck = bits_to_unit(keyed_random_bits(keys[:, None], length + np.arange(most)))
    words = np.flatnonzero(~special)
    other = words[
        bits_to_range(keyed_random_bits(keys[:, None], length + most + np.arange(most)), np.array(len(words)))
    ]
    put = np.where(luck < MASK_FRACTION, mask, np.where(luck < MASK_FRACTION + RANDOM_FRACTION, other, targets))
    seen = tokens.copy()
    row = np.broadcast_to(np.arange(rows)[:, None], at.shape)
    seen[row[asked], at[asked]] = put[asked]
    return seen, at, targets


def keyed_random_bits(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """64 random bits for every key and number."""
    with np.errstate(over="ignore"):  # the mixing is meant to
        return splitmix64(splitmix64(keys.astype(_U64)) + numbers.astype(_U64) * _U64(GOLDEN_GAMMA))


def bits_to_unit(bits: np.ndarray) -> np.ndarray:
    """Random bits as numbers from 0 up to 1."""
    found: np.ndarray = (bits >> _U64(11)) * 2.0**-53
    return found


def bits_to_range(bits: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Random bits as whole numbers from 0 up to `most`, left out; 0 where that is none."""
    found: np.ndarray = (bits % np.maximum(most, 1).astype(_U64)).astype(np.int64)
    return found
