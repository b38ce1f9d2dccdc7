"""Sinusoidal positions: sines and cosines of the index at geometrically spaced frequencies.

    p_n[2i] = sin θ_i(n)     p_n[2i+1] = cos θ_i(n)     θ_i(n) = n · base^(-2i/C)        x_n + p_n

A shift by k rotates each pair by an angle that depends on k only, so p_{n+k} is a linear map of p_n, the same for all
n. The layout "halves" puts all sines before all cosines, as Marian does; the angles are the same. (tensor2tensor and
fairseq do so too, but their lowest frequency is exactly 1/base: another table.) Nothing is learned; any index works.

Vaswani et al.: Attention Is All You Need. NeurIPS 2017. arXiv:1706.03762
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput, did_you_mean
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Range
from regard.positions.angles import angles
from regard.positions.traits import PositionTraits

LAYOUTS = ("interleaved", "halves")


class SinusoidalPositions(nn.Module):
    """Add sines and cosines of the index; `layout`: interleaved, or in halves."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("sequence", invariant=frozenset({"shift"}))

    def __init__(
        self, width: int, layout: str = "interleaved", base: Annotated[float, Range(above=0)] = 10000.0
    ) -> None:
        super().__init__()
        if layout not in LAYOUTS:
            raise BadInput(f"sinusoidal positions have no layout '{layout}'; {did_you_mean(layout, LAYOUTS)}")
        self.width, self.layout, self.base = width, layout, base

    def forward(self, x: Float[Tensor, "B N C"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B N C"]:
        return x + self.vectors(index, x.dtype)

    def vectors(self, index: Int[Tensor, "#B N"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "#B N C"]:
        """Return the vector of each index, in [-1, 1]."""
        angle = angles(index, self.width, self.base)
        sin, cos = angle.sin().to(dtype), angle.cos().to(dtype)
        if self.layout == "halves":
            return torch.cat([sin, cos], -1)[..., : self.width]  # an odd width has one cosine fewer
        return torch.stack([sin, cos], -1).flatten(-2)[..., : self.width]

    def extra_repr(self) -> str:
        return f"width={self.width}, layout={self.layout!r}, base={self.base}"
