"""Rows of symbols with answers to predict, generated: associative recall and copying.

    recall     5 31  2 40  7 33  .  .  2? .  5?  .          the value that stood beside the same key: 40, 31
    copy       5 9 2 7  .  ?  ?  ?  ?                       the symbols again, in order: 5 9 2 7

A `?` marks where an answer is predicted, at a key or at a blank, `.` is filler; nothing else is predicted. The rows fit
a causal model, which sees only what came before, as well as an encoder: no answer stands behind its mark. The numbers
of a row are computed from the seed and its index, so that nothing is stored.

The answer is predicted at the key itself, as in Zoology. At a blank behind the key, a model must learn at once to look
one token back from the blank and from the values; small models then stay for long at guessing among the row's values.

    token      0 padding     1 ?     2 .     3 ... the symbols

Recall is solved by looking up content, copying by looking up a distance; a mechanism that compresses the past into a
state of fixed size, or that sees a window only, fails at one of them from some length on.

Arora et al. 2023 (Zoology, multi-query associative recall), arXiv:2312.04927; Katharopoulos et al. 2020 (copying),
arXiv:2006.16236
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import blake2b

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit
from regard.data.shards.token_shards import IGNORE_INDEX, TokenBatch, count_predicted_tokens
from regard.data.shuffle import random_bits

PAD, BLANK, FILLER, FIRST_SYMBOL = 0, 1, 2, 3
WORDS = {BLANK: "?", FILLER: "."}


@dataclass(frozen=True)
class SymbolRows(Dataset):
    """What both datasets share: a subclass makes rows in `fill`."""

    context_length: int = field(512, low=3)  # tokens per row
    symbols: int = 128
    train_examples: int = 100_000
    eval_examples: int = 1000  # of val and of test
    batch_size: int = 32  # rows per batch over all processes
    seed: int = field(0, low=0, below=2**63)

    quick_settings = {  # noqa: RUF012
        "context_length": 24,
        "symbols": 16,
        "train_examples": 64,
        "eval_examples": 16,
        "batch_size": 8,
    }

    def __post_init__(self) -> None:
        validate(self, "data.")

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.symbols

    def load(self, split: str) -> SymbolSplit:
        return SymbolSplit(self, self.split(split))

    def fill(self, key: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens B N of these rows, and the answers where one is predicted."""
        raise NotImplementedError


@dataclass(frozen=True)
class AssociativeRecall(SymbolRows):
    """Pairs of a key and a value, then every key once more in the rest of the row: there its value is asked."""

    pairs: int = 32

    quick_settings = SymbolRows.quick_settings | {"pairs": 4}

    def load(self, split: str) -> SymbolSplit:
        if 4 * self.pairs > self.context_length or self.pairs > self.symbols // 2:
            raise BadInput(
                f"data.pairs={self.pairs} needs rows of at least {4 * self.pairs} tokens and {2 * self.pairs} symbols; "
                f"data.context_length={self.context_length}, data.symbols={self.symbols}"
            )
        return super().load(split)

    def title(self) -> str:
        return "associative recall"

    def fill(self, key: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half, slots = self.symbols // 2, (self.context_length - 2 * self.pairs) // 2
        bits = _random_rows(key, rows, half + self.pairs + slots)
        order, drawn, places = np.split(bits, [half, half + self.pairs], axis=1)
        keys = FIRST_SYMBOL + np.argsort(order, 1)[:, : self.pairs]  # distinct
        values = FIRST_SYMBOL + half + (drawn % np.uint64(self.symbols - half)).astype(np.int64)
        at = 2 * self.pairs + 2 * np.argsort(places, 1)[:, : self.pairs]  # where each key is asked for
        tokens = np.full((len(rows), self.context_length), FILLER)
        tokens[:, 0 : 2 * self.pairs : 2], tokens[:, 1 : 2 * self.pairs : 2] = keys, values
        answers = np.full_like(tokens, IGNORE_INDEX)
        row = np.arange(len(rows))[:, None]
        tokens[row, at], answers[row, at] = keys, values
        return tokens, answers


@dataclass(frozen=True)
class Copying(SymbolRows):
    """Symbols, a filler, and a blank for each of them."""

    def title(self) -> str:
        return "copying"

    def fill(self, key: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        many = (self.context_length - 1) // 2
        drawn = FIRST_SYMBOL + (_random_rows(key, rows, many) % np.uint64(self.symbols)).astype(np.int64)
        tokens = np.full((len(rows), self.context_length), FILLER)
        answers = np.full_like(tokens, IGNORE_INDEX)
        tokens[:, :many], tokens[:, -many:], answers[:, -many:] = drawn, BLANK, drawn
        return tokens, answers


class SymbolSplit(DatasetSplit[TokenBatch]):
    """The rows of one split, made when they are asked for."""

    def __init__(self, settings: SymbolRows, part: str) -> None:
        self.settings, self.part, self.batch_size = settings, part, settings.batch_size
        digest = blake2b(f"{settings.seed}/{part}/{settings.title()}".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def __len__(self) -> int:
        return self.settings.train_examples if self.part == "train" else self.settings.eval_examples

    def fingerprint(self) -> str:
        return blake2b(f"{self.key} {sorted(asdict(self.settings).items())}".encode(), digest_size=8).hexdigest()

    def count(self, batch: TokenBatch) -> int:
        return count_predicted_tokens(batch)

    def collate(self, rows: Int[Tensor, " B"]) -> TokenBatch:
        tokens, answers = self.settings.fill(self.key, rows.numpy())
        return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(answers))


def _random_rows(key: int, rows: np.ndarray, count: int) -> np.ndarray:
    """Return `count` random 64-bit numbers for each of these rows."""
    counter = rows.astype(np.uint64)[:, None] * np.uint64(1 << 20) + np.arange(count, dtype=np.uint64)
    return random_bits(key, counter)
