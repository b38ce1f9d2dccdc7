"""ALiBi, attention with linear biases: a penalty proportional to distance, with a fixed slope for each head.

    softmax    s_nm = q_n · k_m
    alibi      s_nm = q_n · k_m - a_h |n - m|        a_h = 2^(-8h/H),  h = 1 ... H

The penalty does not depend on the length, so a model can run on inputs longer than those it was trained on. The formula
is for H a power of two; else the slopes of the next lower power P come first, then every other slope of 2P heads, as in
the authors' code. In bidirectional attention the distance is absolute.

Press, Smith, Lewis: Train Short, Test Long. ICLR 2022. arXiv:2108.12409
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from regard.core.shapes import Float, Int, Tensor
from regard.positions.bias.distance import DistanceBias
from regard.positions.traits import PositionTraits


class AlibiPositions(nn.Module):
    """A fixed slope for each head."""

    kind: ClassVar[str] = "bias"
    traits: ClassVar = PositionTraits("sequence", invariant=frozenset({"shift"}))

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def bias(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"]) -> AlibiBias:
        """Return the bias between these indices."""
        return AlibiBias(queries, keys, self.slopes(queries.device))

    def slopes(self, device: torch.device | None = None) -> Float[Tensor, "H"]:
        """Return a_h, decreasing, in float32; computed, so there is no buffer to save or to move."""
        power = 1 << (self.heads.bit_length() - 1)  # the largest power of two that is not above H
        h = torch.arange(1, self.heads + 1, device=device, dtype=torch.float32)
        return torch.exp2(torch.where(h <= power, -8 * h / power, -4 * (2 * (h - power) - 1) / power))

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class AlibiBias(DistanceBias):
    """The bias -slope · distance."""

    def __init__(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"], slopes: Float[Tensor, "H"]) -> None:
        super().__init__(queries, keys)
        self.slopes = slopes

    def matrix(self, distance: Int[Tensor, "#B N M"]) -> Float[Tensor, "#B H N M"]:
        return -self.slopes[:, None, None] * distance.abs()[:, None]

    def value_at(self, distance: Tensor, head: Tensor) -> Tensor:
        return -self.slopes[head] * distance.abs()
