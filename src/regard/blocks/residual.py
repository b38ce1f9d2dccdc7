"""The way around: x plus what a sublayer adds to it, with the norm before the sublayer or after the sum.

post-norm (2017)    norm(x + drop(f(x)))
pre-norm            x + drop(f(norm(x)))       Xiong et al. 2020, arXiv:2002.04745
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from regard.core.shapes import Tensor


class Residual(nn.Module):
    """What a block's sublayers have in common: where the norm stands, and dropout. Subclassed by the blocks."""

    def __init__(self, pre: bool, dropout: float) -> None:
        super().__init__()
        self.pre = pre
        self.drop = nn.Dropout(dropout)

    def around(self, x: Tensor, norm: nn.Module, f: Callable[[Tensor], Tensor]) -> Tensor:
        """One sublayer with its residual path."""
        if self.pre:
            return x + self.drop(f(norm(x)))
        out: Tensor = norm(x + self.drop(f(x)))
        return out
