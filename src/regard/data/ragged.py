"""Ragged tensors: many sequences end to end in one tensor, so that a batch is one gather.

Lists cost about 100 bytes per token and a Python loop for every batch; a ragged tensor costs 4 bytes per token, and
padding a batch is four tensor operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.core.shapes import Int, Tensor


@dataclass(frozen=True, eq=False)
class RaggedTensor:
    """Sequence i is ``values[starts[i] : starts[i] + lengths[i]]``."""

    values: Int[Tensor, " total"]  # int32
    starts: Int[Tensor, " sequences"]  # int64
    lengths: Int[Tensor, " sequences"]  # int64

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> RaggedTensor:
        """Concatenate lists of numbers."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        values = torch.tensor([value for row in rows for value in row], dtype=torch.int32)
        return cls.from_lengths(values, lengths)

    @classmethod
    def from_lengths(cls, values: Int[Tensor, " total"], lengths: Int[Tensor, " sequences"]) -> RaggedTensor:
        """Split a tensor into sequences of these lengths."""
        return cls(values, torch.cumsum(lengths, 0) - lengths, lengths)

    @classmethod
    def concat(cls, parts: Sequence[RaggedTensor]) -> RaggedTensor:
        """Concatenate ragged tensors (made by `from_rows` or `from_lengths`)."""
        return cls.from_lengths(torch.cat([p.values for p in parts]), torch.cat([p.lengths for p in parts]))

    def __len__(self) -> int:
        return len(self.lengths)

    def select(self, rows: Int[Tensor, " B"]) -> RaggedTensor:
        """Return only these sequences (the values are shared)."""
        return RaggedTensor(self.values, self.starts[rows], self.lengths[rows])

    def pad(self, rows: Int[Tensor, " B"], pad: int, multiple: int = 1) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
        """Return these sequences padded on the right to the longest (rounded up to a multiple), and their lengths."""
        lengths = self.lengths[rows]
        width = round_up(int(lengths.max()), multiple) if len(rows) else 0
        index = torch.arange(width)
        position = (self.starts[rows][:, None] + index).clamp_(max=max(len(self.values) - 1, 0))
        if not len(self.values):
            return torch.full((len(rows), width), pad), lengths
        values = self.values[position].long()
        return values.masked_fill_(index >= lengths[:, None], pad), lengths

    def row(self, i: int) -> list[int]:
        """Return one sequence as a list."""
        start, length = int(self.starts[i]), int(self.lengths[i])
        found: list[int] = self.values[start : start + length].tolist()
        return found


def round_up(n: int, multiple: int) -> int:
    """Return the next multiple at or above n."""
    return -(-n // multiple) * multiple
