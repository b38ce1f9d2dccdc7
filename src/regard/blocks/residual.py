"""The way around: x plus what a sublayer adds to it, with the norm before the sublayer or after the sum.

post-norm (2017)    norm(x + drop(f(x)))
pre-norm            x + drop(f(norm(x)))       Xiong et al. 2020, arXiv:2002.04745

What is added may be scaled by channel, and left out whole for some inputs while training (blocks.paths).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from regard.blocks.drop_path import DropPath
from regard.core.shapes import Tensor


class ResidualBlock(nn.Module):
    """What a block's sublayers have in common: where the norm stands, and dropout. Subclassed by the blocks."""

    def __init__(self, pre_norm: bool, dropout: float, drop_path: float = 0.0) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.drop = nn.Dropout(dropout)
        self.path = DropPath(drop_path) if drop_path else None

    def residual(
        self, x: Tensor, norm: nn.Module, f: Callable[[Tensor], Tensor], scale: nn.Module | None = None
    ) -> Tensor:
        """One sublayer with its residual path."""
        if self.pre_norm:
            return x + self._branch(f(norm(x)), scale)
        out: Tensor = norm(x + self._branch(f(x), scale))
        return out

    def _branch(self, branch: Tensor, scale: nn.Module | None) -> Tensor:
        branch = self.drop(branch)
        branch = branch if scale is None else scale(branch)
        return branch if self.path is None else self.path(branch)
