"""Sums of long numbers, generated: short ones first, then longer (a curriculum).

    aligned    source  <11> <01> <10> </s>        target  <s> 0 0 0 1 </s>        both numbers side by side
    line       source  1 0 1 + 1 1 0 </s>         target  <s> 0 0 0 1 </s>        one after the other

The lowest digit comes first, both numbers have equally many digits, the sum has one more: here 5 + 3 = 8 in base 2.

A row is a number that encodes the number of digits and the index of the sum; its digits are computed from it. All sums
of a batch have equally many digits: in epoch e up to initial_digits + e · digits_per_epoch, at most `digits`; half of
the batches have the largest number, the others any smaller one.

    train        up to `digits` digits          val    the same, other sums          test    `test_digits` digits

Kaiser, Sutskever 2016, arXiv:1511.08228; Price, Zaremba, Sutskever 2016 (aligned), arXiv:1611.00736
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit
from regard.data.batching import mix_seed
from regard.data.shuffle import random_bits
from regard.data.text.parallel_corpus import PairBatch, count_target_tokens

SPLITS = ("train", "val", "test")
PAD, BOS, EOS, FIRST_DIGIT = 0, 1, 2, 3  # FIRST_DIGIT is the token of digit 0
MAX_DIGITS = 1 << 16  # limit of the digits encoded in a row number
EVAL_EXAMPLES = 200  # evaluated sums of each length


@dataclass(frozen=True)
class Arithmetic(Dataset):
    """Settings of the dataset."""

    base: int = field(2, low=2, high=10)
    digits: int = 20  # of the longest training numbers
    layout: Literal["aligned", "line"] = "aligned"
    initial_digits: int = 3  # largest number of digits in the first epoch
    digits_per_epoch: float = field(1.0, low=0)  # added with every epoch
    batch_size: int = 32  # rows per batch over all processes
    batches_per_epoch: int = 100
    test_digits: tuple[int, ...] = (20, 40, 100)  # digits of the test numbers
    seed: int = field(0, low=-(2**63), below=2**64)  # of the sums

    def __post_init__(self) -> None:
        validate(self, "data.")
        if max(self.digits, *self.test_digits, 1) >= MAX_DIGITS:
            raise BadInput(f"numbers have at most {MAX_DIGITS - 1} digits")

    quick_settings = {"digits": 4, "batch_size": 8, "batches_per_epoch": 4, "test_digits": (4, 6)}  # noqa: RUF012

    def title(self) -> str:
        return "arithmetic"

    def load(self, split: str) -> ArithmeticSplit:
        return ArithmeticSplit(self, self.split(split))

    @property
    def vocab_size(self) -> int:
        """The number of tokens: three special ones, and digits with a plus sign, or pairs of digits."""
        return FIRST_DIGIT + (self.base**2 if self.layout == "aligned" else self.base + 1)

    def source(self, a: Int[Tensor, "B D"], b: Int[Tensor, "B D"]) -> Int[Tensor, "B N"]:
        """Return the source tokens of two numbers each, digits lowest first."""
        end = torch.full((len(a), 1), EOS)
        if self.layout == "aligned":
            return torch.cat([FIRST_DIGIT + self.base * a + b, end], 1)
        sign = torch.full_like(end, FIRST_DIGIT + self.base)
        return torch.cat([FIRST_DIGIT + a, sign, FIRST_DIGIT + b, end], 1)


class ArithmeticSplit(DatasetSplit[PairBatch]):
    """The sums of one split."""

    def __init__(self, settings: Arithmetic, part: str) -> None:
        self.settings, self.part = settings, part
        digest = blake2b(f"{settings.seed}/{part}/{settings.base}".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def fingerprint(self) -> str:
        s = self.settings
        return blake2b(
            f"{self.key} {s.digits} {s.layout} {s.initial_digits} {s.digits_per_epoch}".encode(), digest_size=8
        ).hexdigest()

    def __len__(self) -> int:
        """Return the number of sums in an epoch."""
        return self.settings.batches_per_epoch * self.settings.batch_size

    def order(self, seed: int, epoch: int) -> _Epoch:
        return _Epoch(self.settings, seed, epoch)

    def count(self, batch: PairBatch) -> int:
        return count_target_tokens(batch)

    def lengths(self) -> Sequence[int]:
        """Return the numbers of digits that are evaluated."""
        s = self.settings
        return s.test_digits if self.part == "test" else sorted({s.digits, (s.digits + 1) // 2})

    def eval_batches(self, digits: int, count: int = EVAL_EXAMPLES) -> Iterator[PairBatch]:
        """Yield fixed sums of this many digits."""
        for numbers in torch.arange(count).split(max(1, min(50, 5000 // digits))):
            yield self.collate(numbers * MAX_DIGITS + digits)

    def collate(self, rows: Int[Tensor, " B"]) -> PairBatch:
        """Return these sums as a batch; all have as many digits as the first."""
        digits, settings = int(rows[0]) % MAX_DIGITS, self.settings
        a, b = self._digits(rows // MAX_DIGITS, digits)
        total, carry = [], torch.zeros(len(rows), dtype=torch.long)
        for position in range(digits):
            digit_sum = a[:, position] + b[:, position] + carry
            total.append(digit_sum % settings.base)
            carry = digit_sum // settings.base
        source = settings.source(a, b)
        written = FIRST_DIGIT + torch.stack([*total, carry], 1)
        ends = torch.full((len(rows), 1), BOS), written, torch.full((len(rows), 1), EOS)
        target = torch.cat(ends, 1)
        return PairBatch(source, _full_lengths(source), target, _full_lengths(target))

    def _digits(self, numbers: Int[Tensor, " B"], digits: int) -> tuple[Tensor, Tensor]:
        """Return the digits of both numbers, lowest first; they depend on the number of digits."""
        counter = numbers.numpy().astype(np.uint64)[:, None] * np.uint64(2 * MAX_DIGITS) + np.arange(
            2 * digits, dtype=np.uint64
        )
        found = random_bits(mix_seed(self.key, digits), counter) % np.uint64(self.settings.base)
        values = torch.from_numpy(found.astype(np.int64))
        return values[:, :digits], values[:, digits:]


class _Epoch:
    """Batches of one epoch: their numbers of digits, and which sums."""

    def __init__(self, settings: Arithmetic, seed: int, epoch: int) -> None:
        self.settings, self.epoch = settings, epoch
        max_digits = min(settings.digits, int(settings.initial_digits + epoch * settings.digits_per_epoch))
        random_values = random_bits(
            mix_seed(seed, epoch), np.arange(2 * settings.batches_per_epoch, dtype=np.uint64)
        ).reshape(2, -1)
        self.digits = np.where(
            random_values[0] % np.uint64(2), max_digits, 1 + random_values[1] % np.uint64(max_digits)
        ).astype(np.int64)

    def __len__(self) -> int:
        return self.settings.batches_per_epoch

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        rows = self.settings.batch_size
        numbers = (self.epoch * len(self) + i) * rows + torch.arange(rows)
        return numbers * MAX_DIGITS + int(self.digits[i])


def _full_lengths(x: Tensor) -> Tensor:
    return torch.full((len(x),), x.shape[1])
