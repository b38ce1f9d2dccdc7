"""Sums of long numbers, made when they are asked for: short ones first, then longer (a curriculum).

    aligned    source  <11> <01> <10> </s>          target  <s> 0 0 0 1 </s>     both numbers digit by digit, side by side
    line       source  1 0 1 + 1 1 0 </s>           target  <s> 0 0 0 1 </s>     one after the other

The lowest digit comes first, both numbers have as many digits, the sum has one more: here 5 + 3 = 8 in base 2.

Nothing is read from a disk. A row is a number that says how many digits there are and which sum it is; its digits are
computed from it, always the same. All sums of a batch have as many digits. In epoch e they have up to first + e · more,
and never more than `digits`: half of the batches as many as allowed, the others any smaller number.

    train        up to `digits` digits          val    the same, other sums          test    as many as `longer` says

Kaiser, Sutskever 2016, arXiv:1511.08228; Price, Zaremba, Sutskever 2016 (aligned), arXiv:1611.00736
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.batching import Stream, mixed
from regard.data.parallel import Pairs, target_tokens
from regard.data.shards import chosen
from regard.data.shuffle import drawn

PARTS = ("train", "val", "test")
PAD, BOS, EOS, FIRST = 0, 1, 2, 3  # the first digit's number
MOST = 1 << 16  # digits that a row's number has room for
TRIES = 200  # sums of each length that are measured


@dataclass(frozen=True)
class Arithmetic:
    """How long the numbers are, how they are written, and how many sums go into a batch."""

    base: int = 2
    digits: int = 20  # of the longest numbers that are learned from
    layout: Literal["aligned", "line"] = "aligned"
    first: int = 3  # digits at most in the first epoch
    more: float = 1.0  # digits more with every epoch
    rows: int = 32  # in a batch, all processes together
    batches: int = 100  # in an epoch
    longer: tuple[int, ...] = (20, 40, 100)  # digits of the numbers to be tested on
    seed: int = 0  # of the sums

    def __post_init__(self) -> None:
        if not 2 <= self.base <= 10:
            raise BadInput(f"data.base={self.base}: digits are written as 0 to 9; give a base from 2 to 10")
        sizes = {"digits": self.digits, "first": self.first, "rows": self.rows, "batches": self.batches}
        for name, size in {**sizes, "longer": min(self.longer, default=1)}.items():
            if size < 1:
                raise BadInput(f"data.{name}={size}: give 1 or more")
        if max(self.digits, *self.longer, 1) >= MOST:
            raise BadInput(f"numbers have at most {MOST - 1} digits")

    def quick(self) -> Arithmetic:
        """A few short sums: enough to see that everything runs."""
        return replace(self, digits=min(self.digits, 4), rows=min(self.rows, 8), batches=4, longer=(4, 6))

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(PARTS)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), "arithmetic")

    def load(self, split: str) -> Sums:
        """The sums of a part."""
        return Sums(self, self.split(split))

    @property
    def vocabulary(self) -> int:
        """How many different tokens there are: three special ones, and digits with a sign, or pairs of digits."""
        return FIRST + (self.base**2 if self.layout == "aligned" else self.base + 1)

    def source(self, a: Int[Tensor, "B D"], b: Int[Tensor, "B D"]) -> Int[Tensor, "B N"]:
        """Two numbers each, digits lowest first, as a model reads them."""
        end = torch.full((len(a), 1), EOS)
        if self.layout == "aligned":
            return torch.cat([FIRST + self.base * a + b, end], 1)
        sign = torch.full_like(end, FIRST + self.base)
        return torch.cat([FIRST + a, sign, FIRST + b, end], 1)


class Sums:
    """The sums of one part."""

    def __init__(self, settings: Arithmetic, part: str) -> None:
        self.settings, self.part = settings, part
        digest = blake2b(f"{settings.seed}/{part}/{settings.base}".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def fingerprint(self) -> str:
        """A few letters that change when the sums do."""
        s = self.settings
        return blake2b(f"{self.key} {s.digits} {s.layout} {s.first} {s.more}".encode(), digest_size=8).hexdigest()

    def stream(self, seed: int) -> Stream[Pairs]:
        """Training batches without end."""
        return Stream(lambda epoch: _Epoch(self.settings, seed, epoch), self.collate, target_tokens)

    def lengths(self) -> Sequence[int]:
        """How many digits the sums have that are measured."""
        s = self.settings
        return s.longer if self.part == "test" else sorted({s.digits, (s.digits + 1) // 2})

    def in_order(self, digits: int, most: int = TRIES) -> Iterator[Pairs]:
        """Sums of so many digits, always the same, some at a time: for measuring."""
        for some in torch.arange(most).split(max(1, min(50, 5000 // digits))):
            yield self.collate(some * MOST + digits)

    def collate(self, rows: Int[Tensor, " B"]) -> Pairs:
        """These sums as a batch; all of them have as many digits as the first."""
        digits, settings = int(rows[0]) % MOST, self.settings
        a, b = self._digits(rows // MOST, digits)
        total, carry = [], torch.zeros(len(rows), dtype=torch.long)
        for place in range(digits):
            here = a[:, place] + b[:, place] + carry
            total.append(here % settings.base)
            carry = here // settings.base
        source = settings.source(a, b)
        written = FIRST + torch.stack([*total, carry], 1)
        ends = torch.full((len(rows), 1), BOS), written, torch.full((len(rows), 1), EOS)
        target = torch.cat(ends, 1)
        return Pairs(source, _full(source), target, _full(target))

    def _digits(self, which: Int[Tensor, " B"], digits: int) -> tuple[Tensor, Tensor]:
        """The digits of both numbers, lowest first; of the same sums with more digits they would be others."""
        place = which.numpy().astype(np.uint64)[:, None] * np.uint64(2 * MOST) + np.arange(2 * digits, dtype=np.uint64)
        found = drawn(mixed(self.key, digits), place) % np.uint64(self.settings.base)
        both = torch.from_numpy(found.astype(np.int64))
        return both[:, :digits], both[:, digits:]


class _Epoch:
    """The batches of one epoch: how many digits, and which sums."""

    def __init__(self, settings: Arithmetic, seed: int, epoch: int) -> None:
        self.settings, self.epoch = settings, epoch
        most = min(settings.digits, int(settings.first + epoch * settings.more))
        luck = drawn(mixed(seed, epoch), np.arange(2 * settings.batches, dtype=np.uint64)).reshape(2, -1)
        self.digits = np.where(luck[0] % np.uint64(2), most, 1 + luck[1] % np.uint64(most)).astype(np.int64)

    def __len__(self) -> int:
        return self.settings.batches

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        rows = self.settings.rows
        which = (self.epoch * len(self) + i) * rows + torch.arange(rows)
        return which * MOST + int(self.digits[i])


def _full(x: Tensor) -> Tensor:
    return torch.full((len(x),), x.shape[1])
