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
from regard.data.shards import NOTHING
from regard.data.shuffle import STEP, scattered

SHARE = 0.15  # of the tokens
MASK, OTHER = 0.8, 0.1  # of the chosen

_U64 = np.uint64


class Masked(NamedTuple):
    """A batch of texts with words to be guessed."""

    tokens: Int[Tensor, "B N"]  # [CLS] a [SEP] b [SEP], padded on the right
    segments: Int[Tensor, "B N"]
    lengths: Int[Tensor, " B"]
    at: Int[Tensor, "B M"]
    targets: Int[Tensor, "B M"]  # NOTHING where there is none
    follows: Int[Tensor, " B"]  # 0: b follows a; 1: it does not; NOTHING: there is no b

    def to(self, device: torch.device | str) -> Masked:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Masked(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Masked:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Masked(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Masked:
        """Only the first n rows."""
        return Masked(*(x[:n] for x in self))


def places(length: int) -> int:
    """How many words of a row of this length are asked for at most."""
    return max(1, round(SHARE * (length - 2)))


def masked(
    tokens: np.ndarray, keys: np.ndarray, special: np.ndarray, mask: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with words to be guessed: tokens B N as the model sees them, the places B M and the words there B M.

    `special` holds True for each number of the vocabulary that is no word, `keys` a number for each row.
    """
    rows, length = tokens.shape
    most = places(length)
    able = ~special[tokens]
    noise = drawn(keys[:, None], np.arange(length))
    noise[~able] = ~_U64(0)
    at = noise.argsort(1)[:, :most]
    many = np.clip(np.rint(SHARE * able.sum(1)), 1, most)
    asked = (np.arange(most) < many[:, None]) & np.take_along_axis(able, at, 1)
    at = np.where(asked, at, 0)
    targets = np.where(asked, np.take_along_axis(tokens, at, 1), NOTHING)
    luck = unit(drawn(keys[:, None], length + np.arange(most)))
    words = np.flatnonzero(~special)
    other = words[below(drawn(keys[:, None], length + most + np.arange(most)), np.array(len(words)))]
    put = np.where(luck < MASK, mask, np.where(luck < MASK + OTHER, other, targets))
    seen = tokens.copy()
    row = np.broadcast_to(np.arange(rows)[:, None], at.shape)
    seen[row[asked], at[asked]] = put[asked]
    return seen, at, targets


def drawn(keys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """64 random bits for every key and number."""
    with np.errstate(over="ignore"):  # the mixing is meant to
        return scattered(scattered(keys.astype(_U64)) + numbers.astype(_U64) * _U64(STEP))


def unit(bits: np.ndarray) -> np.ndarray:
    """Random bits as numbers from 0 up to 1."""
    found: np.ndarray = (bits >> _U64(11)) * 2.0**-53
    return found


def below(bits: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Random bits as whole numbers from 0 up to `most`, left out; 0 where that is none."""
    found: np.ndarray = (bits % np.maximum(most, 1).astype(_U64)).astype(np.int64)
    return found
