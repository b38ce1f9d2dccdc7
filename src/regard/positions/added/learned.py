"""Learned positions: one learned vector for each index.

    p_n = P[n]     P: length × C, learned        x_n + p_n

The table has `length` rows; a longer input raises an error.

Gehring, Auli, Grangier, Yarats, Dauphin: Convolutional Sequence to Sequence Learning. ICML 2017. arXiv:1705.03122
Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.positions.traits import PositionTraits


class LearnedPositions(nn.Module):
    """Add row `index` of a learned table of `length` rows."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("sequence", learned="table", other_sizes="refused")

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.table = nn.Embedding(length, width)
        nn.init.normal_(self.table.weight, std=0.02)  # as BERT; the default of 1 would dominate the tokens

    def forward(self, x: Float[Tensor, "B N C"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B N C"]:
        return x + self.vectors(index).to(x.dtype)

    def vectors(self, index: Int[Tensor, "#B N"]) -> Float[Tensor, "#B N C"]:
        """Return the vector of each index."""
        self._check_index(index)
        return self.table(index)

    def check_length(self, n: int) -> None:
        """Raise `BadInput` if an input has more tokens than the table has rows."""
        if n > self.length:
            raise BadInput(
                f"{n} positions are needed but {self.length} were learned; shorten the input, or build the "
                f"model with length={n} or with positions of any length, such as 'sinusoidal' or 'rotary'"
            )

    def _check_index(self, index: Int[Tensor, "#B N"]) -> None:
        """Raise `BadInput` for an index without a row.

        On a GPU indices are read (which synchronises) only if there are more than rows, as in packed sequences.
        Compiled code cannot read them: there, stacks check the number of tokens.
        """
        if torch.compiler.is_compiling() or not index.numel():
            return
        if index.device.type == "meta" or (index.device.type != "cpu" and index.shape[1] <= self.length):
            self.check_length(index.shape[1])
            return
        low, high = index.aminmax()
        if int(low) < 0:
            raise BadInput(f"positions must be at least 0, got {int(low)}")
        self.check_length(int(high) + 1)
