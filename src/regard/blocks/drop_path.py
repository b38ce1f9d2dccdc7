"""Residual branches of deep vision models: dropped whole at random, and scaled by channel.

drop path     x + m f(x) / (1 - p),  m ∈ {0, 1} drawn once for each image     Huang et al. 2016, arXiv:1603.09382
layer scale   x + γ ⊙ f(x),  γ learned from a small start                     Touvron et al. 2021, arXiv:2103.17239
"""

from __future__ import annotations

import torch
from torch import nn

from regard.core.shapes import Float, Tensor


class DropPath(nn.Module):
    """Leaves a whole branch out for some inputs of a batch while training; its mean stays what it was."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "B *any"]) -> Float[Tensor, "B *any"]:
        """The branch, or nothing of it."""
        if not self.training or self.p == 0.0:
            return x
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.p)
        return x * (kept / (1 - self.p))

    def extra_repr(self) -> str:
        """What a printed model shows."""
        return f"p={self.p:.3g}"


class LayerScale(nn.Module):
    """One factor a channel, learned."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), start))

    def forward(self, x: Float[Tensor, "*any C"]) -> Float[Tensor, "*any C"]:
        """Scaled."""
        return x * self.gamma


def drop_path_rates(drop_path: float, layers: int) -> list[float]:
    """How often each of the layers is left out: from never to `drop_path`, evenly."""
    return [drop_path * i / max(layers - 1, 1) for i in range(layers)]
