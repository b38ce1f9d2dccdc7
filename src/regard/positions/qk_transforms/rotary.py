"""Rotary positions: rotate every pair of features of q and k by an angle proportional to the index.

    softmax    s_nm =  q_n · k_m
    rotary     s_nm = (R_n q_n) · (R_m k_m) = q_n · R_{m-n} k_m        R_n rotates pair i by θ_i(n) = n · base^(-2i/D)

Each vector is rotated by its own position, and the product depends only on the difference, so a cached key is rotated
once. The layout says which features are a pair: "halves" (i, i + D/2) as in GPT-NeoX, Llama and Hugging Face;
"interleaved" (2i, 2i + 1) as in the paper and GPT-J.

Su, Lu, Pan, Murtadha, Wen, Liu: RoFormer: Enhanced Transformer with Rotary Position Embedding. 2021. arXiv:2104.09864
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput, Unsupported, did_you_mean
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Range
from regard.positions.angles import rotation
from regard.positions.traits import PositionTraits

LAYOUTS = ("halves", "interleaved")


class RotaryPositions(nn.Module):
    """Rotate queries and keys; a larger `base` gives lower frequencies, for longer inputs."""

    kind: ClassVar[str] = "qk_transform"
    traits: ClassVar = PositionTraits("sequence", invariant=frozenset({"shift"}))

    def __init__(self, head_dim: int, base: Annotated[float, Range(above=0)] = 10000.0, layout: str = "halves") -> None:
        super().__init__()
        if head_dim % 2:
            raise Unsupported(f"rotary positions need an even head width, got {head_dim}")
        if layout not in LAYOUTS:
            raise BadInput(f"rotary positions have no layout '{layout}'; {did_you_mean(layout, LAYOUTS)}")
        self.head_dim, self.base, self.layout = head_dim, base, layout

    def transform(self, x: Float[Tensor, "B H N D"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B H N D"]:
        return self._rotate(x, *self._table(index, self._exact(x)))

    def for_pass(self, *indices: Int[Tensor, "#B N"]) -> PassRotation:
        """Return the same transform for one pass, which computes the angles of these indices once for all layers."""
        return PassRotation(self, indices)

    @staticmethod
    def _exact(x: Tensor) -> torch.dtype:
        return torch.float64 if x.dtype == torch.float64 else torch.float32  # half precision is too coarse for angles

    def _table(self, index: Tensor, exact: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each angle, #B 1 N D/2."""
        cos, sin = rotation(index, self.head_dim, self.base, exact)
        return cos[:, None], sin[:, None]

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        exact = cos.dtype
        if self.layout == "halves":
            a, b = x.to(exact).chunk(2, -1)
            rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        else:
            a, b = x.to(exact).unflatten(-1, (-1, 2)).unbind(-1)
            rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        return rotated.to(x.dtype)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, base={self.base}, layout={self.layout!r}"


class PassRotation:
    """Rotary positions in one pass: tables are kept for the given index tensors, which do not change meanwhile."""

    def __init__(self, rotary: RotaryPositions, indices: Sequence[Int[Tensor, "#B N"]]) -> None:
        self.rotary, self.indices = rotary, indices
        self.tables: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}  # by place in `indices`

    def table(self, index: Int[Tensor, "#B N"], exact: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of each angle, kept for an index of the pass."""
        for place, own in enumerate(self.indices):
            if own is index:
                if (place, exact) not in self.tables:
                    self.tables[place, exact] = self.rotary._table(index, exact)
                return self.tables[place, exact]
        return self.rotary._table(index, exact)

    def transform(self, x: Float[Tensor, "B H N D"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B H N D"]:
        """Rotate each vector by its position."""
        return self.rotary._rotate(x, *self.table(index, self.rotary._exact(x)))
