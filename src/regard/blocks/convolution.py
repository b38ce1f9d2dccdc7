"""Convolution over time: every output is a product of the few tokens around it, or before it.

    y_n = W [x_{n-(k-1)d} ... x_{n-d}, x_n] + b        k tokens, d apart; causal: none of them is later      O(N k C C')

Computed as a window and one product: the k shifted copies side by side, then a linear map. So a decoding step is the
same map over the same window, whose past is kept in a ring of (k-1) d slots: slot n mod (k-1) d is read for the last
time and then written at time n. A ring never grows, however long the text. Tokens beyond either end of a text are
zeros.

    weight norm       W = g v / |v|, row by row: norm and direction are learned separately

Salimans, Kingma: Weight Normalization. NeurIPS 2016. arXiv:1602.07868
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor

# -- weight normalisation ----------------------------------------------------------------------------------------------


class WeightNormLinear(nn.Module):
    """A linear map whose rows are a norm times a direction; `std` is that of the initial weights, biases start at 0."""

    def __init__(self, width: int, out: int, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(out, width) * std)
        self.gain = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(out))

    def weight(self) -> Float[Tensor, "out C"]:
        """Return the matrix that is applied; for many steps, compute it once and pass it to `forward`."""
        length = torch.linalg.vector_norm(self.direction, dim=1, keepdim=True)
        # a row of zeros has no direction and stays zero
        return self.direction * (self.gain[:, None] / length.clamp(min=torch.finfo(length.dtype).tiny))

    def forward(
        self, x: Float[Tensor, "*B C"], weight: Float[Tensor, "out C"] | None = None
    ) -> Float[Tensor, "*B out"]:
        return F.linear(x, self.weight() if weight is None else weight, self.bias)


def materialize_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the matrices of all weight-normalised maps in a module by name, computed once for many steps."""
    return {name: part.weight() for name, part in module.named_modules() if isinstance(part, WeightNormLinear)}


# -- convolutions ------------------------------------------------------------------------------------------------------


class Convolution(nn.Module):
    """A map over `kernel` tokens, `dilation` apart, centred at its own (for an even kernel, the later of the two)."""

    def __init__(
        self, width: int, out: int, kernel: int = 3, dilation: int = 1, linear: nn.Module | None = None
    ) -> None:
        super().__init__()
        if kernel < 1 or dilation < 1:
            raise BadInput(f"kernel and dilation of a convolution must be at least 1, got {kernel} and {dilation}")
        self.width, self.kernel, self.dilation = width, kernel, dilation
        self.map: Any = nn.Linear(kernel * width, out) if linear is None else linear

    @property
    def context_size(self) -> int:
        """Number of tokens that a window spans besides its own."""
        return (self.kernel - 1) * self.dilation

    @property
    def left_context(self) -> int:
        """Number of them that come before it."""
        return (self.kernel // 2) * self.dilation

    def forward(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N out"]:
        return self.map(self.unfold(x))

    def unfold(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N kC"]:
        """Return the tokens of every window side by side, the earliest first."""
        if self.kernel == 1:
            return x
        n = x.shape[1]
        padded = F.pad(x, (0, 0, self.left_context, self.context_size - self.left_context))
        return torch.cat([padded[:, at : at + n] for at in range(0, self.context_size + 1, self.dilation)], -1)

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, dilation={self.dilation}"


class CausalConvolution(Convolution):
    """A convolution over a token and those before it; it can step."""

    @property
    def left_context(self) -> int:
        return self.context_size

    def empty_ring(self, like: Float[Tensor, "B ..."]) -> Float[Tensor, "B 1 P C"]:
        """Return a ring of zeros for one beam of each input."""
        return like.new_zeros(like.shape[0], 1, self.context_size, self.width)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        ring: Float[Tensor, "B K P C"],
        time: Int[Tensor, ""],
        frozen: bool = False,
        **weight: Tensor,
    ) -> tuple[Float[Tensor, "B K out"], Float[Tensor, "B K P C"]]:
        """Return the output of the newest token and the ring with it; a frozen ring is written in place."""
        if self.kernel == 1:
            return self.map(x, **weight), ring
        back = torch.arange(self.context_size, 0, -self.dilation, device=x.device)
        past = ring.index_select(2, (time - back) % self.context_size)  # zeros at times before the first
        out = self.map(torch.cat([past.flatten(2), x], -1), **weight)
        write = ring.index_copy_ if frozen else ring.index_copy
        return out, write(2, (time % self.context_size)[None], x[:, :, None].to(ring.dtype))


# -- lengths -----------------------------------------------------------------------------------------------------------


def unfolded_lengths(
    n: int, lengths: Int[Tensor, " B"] | None, length_ratio: float, length_offset: float
) -> tuple[int, Int[Tensor, " B"] | None]:
    """Return the unfolded length a |s| + b for sources of up to n tokens, and that of each source."""
    each = None if lengths is None else (length_ratio * lengths.double() + length_offset).ceil().long()
    return math.ceil(length_ratio * n + length_offset), each
