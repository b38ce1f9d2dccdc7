"""Residual connections: x plus a branch, with the norm before the branch or after the sum.

post-norm (2017)    norm(x + drop(f(x)))
pre-norm            x + drop(f(norm(x)))                                      Xiong et al. 2020, arXiv:2002.04745
drop path           x + m f(x) / (1 - p),  m ∈ {0, 1} drawn for each input    Huang et al. 2016, arXiv:1603.09382
layer scale         x + γ ⊙ f(x),  γ learned from a small start               Touvron et al. 2021, arXiv:2103.17239
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from regard.core.shapes import Float, Tensor


class ResidualBlock(nn.Module):
    """Base class of blocks: where the norm stands, dropout, and drop path."""

    def __init__(self, pre_norm: bool, dropout: float, drop_path: float = 0.0) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.drop = nn.Dropout(dropout)
        self.path = DropPath(drop_path)

    def residual(
        self, x: Tensor, norm: nn.Module, f: Callable[[Tensor], Tensor], scale: nn.Module | None = None
    ) -> Tensor:
        """Apply one sublayer with its residual connection."""
        if self.pre_norm:
            return x + self._branch(f(norm(x)), scale)
        out: Tensor = norm(x + self._branch(f(x), scale))
        return out

    def _branch(self, branch: Tensor, scale: nn.Module | None) -> Tensor:
        branch = self.drop(branch)
        branch = branch if scale is None else scale(branch)
        out: Tensor = self.path(branch)
        return out


class DropPath(nn.Module):
    """Drop the whole branch for some inputs of a batch in training, and scale the others to keep the mean."""

    keep: Tensor | None = None  # 1 - p on the device: compiled blocks of all rates then share one graph

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B *any"]) -> Float[Tensor, "B *any"]:
        if not self.training:
            return x
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        if self.keep is not None and torch.compiler.is_compiling():
            kept = (torch.rand(shape, device=x.device) < self.keep).to(x.dtype)
            return x * (kept / self.keep)
        if self.p == 0.0:
            return x
        return x * (x.new_empty(shape).bernoulli_(1 - self.p) / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p:.3g}"


class LayerScale(nn.Module):
    """One learned factor for each channel."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), start))

    def forward(self, x: Float[Tensor, "*any C"]) -> Float[Tensor, "*any C"]:
        return x * self.gamma


def drop_path_rates(drop_path: float, layers: int) -> list[float]:
    """Return the rate of each layer, rising evenly from 0 to `drop_path`."""
    return [drop_path * i / max(layers - 1, 1) for i in range(layers)]
