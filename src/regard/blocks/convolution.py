"""Convolution over time: every place is a product of the few places around it, or before it.

    y_n = W [x_{n-(k-1)d} ... x_{n-d}, x_n] + b        k places, d apart; causal: none of them is ahead      O(N k C C')

Written as a window and one product: the k shifted copies side by side, then a linear map. So a step is the same map
over the same window, whose past comes out of a ring: (k-1) d slots, of which slot n mod (k-1) d is read for the last
time and then written at time n. A ring never grows, however long the text.

What is not there (before the first place, behind the last real one) is zero, whoever stands beside it in a batch.

    gated             a ∘ σ(b), a and b the two halves                                    Dauphin et al. 2017
    weight norm       W = g v / |v|, row by row: length and direction are learned apart   Salimans and Kingma 2016
    relu              x + up(relu norm conv(relu norm down(relu norm x)))                 ByteNet's residual block
    multiplicative    x + up(g1 ∘ tanh(g2 ∘ h + g3 ∘ tanh(u))), h = down(relu norm x)     and its multiplicative one:
                      g1, g2, g3 (through σ) and u are four parts of conv(h), each normed

Dauphin, Fan, Auli, Grangier: Language Modeling with Gated Convolutional Networks. ICML 2017. arXiv:1612.08083
Salimans, Kingma: Weight Normalization. NeurIPS 2016. arXiv:1602.07868
Kalchbrenner et al.: Neural Machine Translation in Linear Time. 2016. arXiv:1610.10099
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import Fraction

# -- maps --------------------------------------------------------------------------------------------------------------


class WeightNormLinear(nn.Module):
    """A linear map whose rows are a length times a direction; `std` is that of the fresh weights, biases begin at 0."""

    def __init__(self, width: int, out: int, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(out, width) * std)
        self.gain = nn.Parameter(self.direction.detach().norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(out))

    def weight(self) -> Float[Tensor, "out C"]:
        """The matrix that is applied; where many steps follow, it is made once for all of them."""
        length = torch.linalg.vector_norm(self.direction, dim=1, keepdim=True)
        # a row of zeros has no direction: it stays one of zeros
        return self.direction * (self.gain[:, None] / length.clamp(min=torch.finfo(length.dtype).tiny))

    def forward(
        self, x: Float[Tensor, "*B C"], weight: Float[Tensor, "out C"] | None = None
    ) -> Float[Tensor, "*B out"]:
        """The product, with a matrix made before where one is given."""
        return F.linear(x, self.weight() if weight is None else weight, self.bias)


def materialize_weights(module: nn.Module) -> dict[str, Tensor]:
    """The matrices of all normed maps in a module, by their names there: made once, before many steps."""
    return {name: part.weight() for name, part in module.named_modules() if isinstance(part, WeightNormLinear)}


# -- convolutions ------------------------------------------------------------------------------------------------------


class Convolution(nn.Module):
    """A map over `kernel` places, `dilation` apart; its own place is the middle one (or the one behind the middle)."""

    def __init__(
        self, width: int, out: int, kernel: int = 3, dilation: int = 1, linear: nn.Module | None = None
    ) -> None:
        super().__init__()
        if kernel < 1 or dilation < 1:
            raise BadInput(
                f"a convolution over {kernel} places, {dilation} apart, reads nothing; give 1 or more of both"
            )
        self.width, self.kernel, self.dilation = width, kernel, dilation
        self.map: Any = nn.Linear(kernel * width, out) if linear is None else linear

    @property
    def context_size(self) -> int:
        """How many places a window spans beside its own."""
        return (self.kernel - 1) * self.dilation

    @property
    def left_context(self) -> int:
        """How many of them are before it."""
        return (self.kernel // 2) * self.dilation

    def forward(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N out"]:
        """Every place out of its window; beyond both ends there are zeros."""
        return self.map(self.unfold(x))

    def unfold(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N kC"]:
        """The places of every window side by side, the earliest first."""
        if self.kernel == 1:
            return x
        n = x.shape[1]
        padded = F.pad(x, (0, 0, self.left_context, self.context_size - self.left_context))
        return torch.cat([padded[:, at : at + n] for at in range(0, self.context_size + 1, self.dilation)], -1)

    def extra_repr(self) -> str:
        """What a printed model shows."""
        return f"kernel={self.kernel}, dilation={self.dilation}"


class CausalConvolution(Convolution):
    """The same with nothing ahead: the last place of a window is its own. It steps."""

    @property
    def left_context(self) -> int:
        """All of them."""
        return self.context_size

    def empty_ring(self, like: Float[Tensor, "B ..."]) -> Float[Tensor, "B 1 P C"]:
        """An empty past, for one beam of each input."""
        return like.new_zeros(like.shape[0], 1, self.context_size, self.width)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        empty_ring: Float[Tensor, "B K P C"],
        time: Int[Tensor, ""],
        frozen: bool = False,
        **weight: Tensor,
    ) -> tuple[Float[Tensor, "B K out"], Float[Tensor, "B K P C"]]:
        """The newest place out of its window, and the ring with it; a frozen ring is written in place."""
        if self.kernel == 1:
            return self.map(x, **weight), empty_ring
        back = torch.arange(self.context_size, 0, -self.dilation, device=x.device)
        past = empty_ring.index_select(2, (time - back) % self.context_size)  # zeros at times before the first
        out = self.map(torch.cat([past.flatten(2), x], -1), **weight)
        write = empty_ring.index_copy_ if frozen else empty_ring.index_copy
        return out, write(2, (time % self.context_size)[None], x[:, :, None].to(empty_ring.dtype))


# -- residual blocks of dilated convolutions ---------------------------------------------------------------------------


class ReluConvBlock(nn.Module):
    """Down to half the width, a convolution, up again, each after a norm and a ReLU; added to what came in."""

    gates = 1

    def __init__(self, width: int, kernel: int, dilation: int, causal: bool, dropout: Fraction = 0.0) -> None:
        super().__init__()
        inner = width // 2
        self.norm, self.down = nn.LayerNorm(width), nn.Linear(width, inner)
        self.inner_norm = self.inner(inner)
        kind = CausalConvolution if causal else Convolution
        self.conv = kind(inner, self.gates * inner, kernel, dilation)
        self.conv_norm: nn.Module = nn.LayerNorm(inner)
        self.up = nn.Linear(inner, width)
        self.drop = nn.Dropout(dropout)

    @staticmethod
    def inner(width: int) -> nn.Module:
        """What stands between the way down and the convolution."""
        return nn.Sequential(nn.LayerNorm(width), nn.ReLU())

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        """All places at once; those that are not real are zeros to their neighbours."""
        h = self.pre_conv(x)
        h = h if real is None else h * real[..., None]
        return x + self.post_conv(self.conv(h), h)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        empty_ring: Float[Tensor, "B K P D"],
        time: Int[Tensor, ""],
        frozen: bool = False,
    ) -> tuple[Float[Tensor, "B K C"], Float[Tensor, "B K P D"]]:
        """The newest place of every beam."""
        h = self.pre_conv(x)
        out, empty_ring = self.conv.step(h, empty_ring, time, frozen)  # type: ignore[operator]
        return x + self.post_conv(out, h), empty_ring

    def pre_conv(self, x: Tensor) -> Tensor:
        """What the convolution reads."""
        return self.inner_norm(self.down(F.relu(self.norm(x))))

    def post_conv(self, out: Tensor, h: Tensor) -> Tensor:
        """What is added, out of the convolution and what it read."""
        return self.drop(self.up(F.relu(self.conv_norm(out))))


class MultiplicativeConvBlock(ReluConvBlock):
    """The same with a multiplicative unit in place of the inner ReLU: three gates and an update."""

    gates = 4

    def __init__(self, width: int, kernel: int, dilation: int, causal: bool, dropout: Fraction = 0.0) -> None:
        super().__init__(width, kernel, dilation, causal, dropout)
        self.conv_norm = nn.GroupNorm(self.gates, self.gates * (width // 2))  # each gate a norm of its own

    @staticmethod
    def inner(width: int) -> nn.Module:
        """Nothing: the unit norms what it makes."""
        return nn.Identity()

    def post_conv(self, out: Tensor, h: Tensor) -> Tensor:
        """The unit, and the way up."""
        normed = self.conv_norm(out.flatten(0, 1)).view_as(out)
        first, second, third, new = normed.chunk(4, -1)
        unit = torch.sigmoid(first) * torch.tanh(torch.sigmoid(second) * h + torch.sigmoid(third) * torch.tanh(new))
        return self.drop(self.up(unit))


# -- lengths -----------------------------------------------------------------------------------------------------------


def unfolded_lengths(
    n: int, lengths: Int[Tensor, " B"] | None, length_ratio: float, length_offset: float
) -> tuple[int, Int[Tensor, " B"] | None]:
    """How many places sources of up to n tokens take when they are unfolded, and how many each takes: a |s| + b."""
    each = None if lengths is None else (length_ratio * lengths.double() + length_offset).ceil().long()
    return math.ceil(length_ratio * n + length_offset), each
