"""Learned positions: one free vector for each index, looked up and added.

    p_n = P[n]     P: length × C, learned        x_n + p_n

Nothing is assumed about order, so nothing is known past the last row: a longer input is an error, never a guess.

Gehring, Auli, Grangier, Yarats, Dauphin: Convolutional Sequence to Sequence Learning. ICML 2017. arXiv:1705.03122
Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor


class LearnedPositions(nn.Module):
    """Adds row `index` of a table of `length` rows."""

    kind: ClassVar[str] = "added"

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.table = nn.Embedding(length, width)
        nn.init.normal_(self.table.weight, std=0.02)  # BERT's; the default of 1 would drown the tokens

    def forward(self, x: Float[Tensor, "B N C"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B N C"]:
        """The tokens, told where they are."""
        return x + self.vectors(index).to(x.dtype)

    def vectors(self, index: Int[Tensor, "#B N"]) -> Float[Tensor, "#B N C"]:
        """What is added at each index."""
        self._check_index(index)
        return self.table(index)

    def check_length(self, n: int) -> None:
        """Refuse an input of more tokens than there are rows."""
        if n > self.length:
            raise BadInput(
                f"{n} positions are needed but {self.length} were learned; shorten the input, or build the "
                f"model with length={n} or with positions that have no end, such as 'sinusoidal' or 'rotary'"
            )

    def _check_index(self, index: Int[Tensor, "#B N"]) -> None:
        """Refuse what the table has no row for. On a GPU to read an index is to wait: only a long one is looked at.

        Texts laid end to end are many tokens at few places. Compiled code cannot look: stacks count their tokens.
        """
        if torch.compiler.is_compiling() or not index.numel():
            return
        if index.device.type == "meta" or (index.device.type != "cpu" and index.shape[1] <= self.length):
            self.check_length(index.shape[1])
            return
        low, high = index.aminmax()
        if int(low) < 0:
            raise BadInput(f"position {int(low)} is before the first; count from 0")
        self.check_length(int(high) + 1)
