"""A mixture-density head: not the next point but how likely every point of the plane is, and whether the pen lifts.

    p(x, up) = Σ_j π_j N(x; μ_j, σ_j, ρ_j) · e^up (1 - e)^(1 - up)
    π = softmax(π̂)    μ = μ̂    σ = exp(σ̂) + a floor    ρ = 0.999 tanh(ρ̂)    e = sigmoid(ê)        6 P + 1 numbers

With u, v = (x - μ) / σ the exponent is -(u² + (v - ρ u)² / (1 - ρ²)) / 2: a sum of squares, which rounding cannot make
positive. The floor keeps a bell from closing in on a point that repeats exactly; everything is taken in float32 or
better, and a point a million units away counts as just that far.

Drawing with a bias b (0: as learned) sharpens: π̂ (1 + b), σ exp(-b); here also ê (1 + b).

Bishop: Mixture Density Networks. 1994. Graves: Generating Sequences With Recurrent Neural Networks. 2013.
arXiv:1308.0850 (equations 18 to 26, 61, 62)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor

FLOOR = 0.02  # of σ: two hundredths of the unit that points are counted in
FARTHEST = 1e6  # from a mean, in the same unit
LARGEST = 12.0  # of σ̂


class Mixture(NamedTuple):
    """What may come next: P bells in the plane, and how likely the pen is lifted after the point."""

    shares: Float[Tensor, "*B P"]  # log π, which sum to one
    means: Float[Tensor, "*B P 2"]
    spread: Float[Tensor, "*B P 2"]  # σ
    tilt: Float[Tensor, "*B P"]  # ρ
    lift: Float[Tensor, "*B"]  # ê: the logit of the pen's lifting

    def log_density(self, points: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B"]:
        """The logarithm of the density of points, pen or no pen."""
        # bounded before it is divided: beyond, a gradient would be zero times infinity
        away = (points.to(self.means.dtype)[..., None, :] - self.means).clamp(-FARTHEST, FARTHEST)
        u, v = (away / self.spread).unbind(-1)
        narrow = 1 - self.tilt.square()
        squares = u.square() + (v - self.tilt * u).square() / narrow
        bells = -0.5 * (squares + narrow.log()) - self.spread.log().sum(-1) - math.log(2 * math.pi)
        return torch.logsumexp(self.shares + bells, -1)

    def log_pen(self, up: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """The logarithm of the probability that the pen does this: 1 lifted, 0 not."""
        return -F.binary_cross_entropy_with_logits(self.lift, up.to(self.lift.dtype), reduction="none")

    def biased(self, bias: float) -> Mixture:
        """The same, surer of itself."""
        shares = torch.log_softmax(self.shares * (1 + bias), -1)
        return self._replace(shares=shares, spread=self.spread * math.exp(-bias), lift=self.lift * (1 + bias))

    def draw(self, chance: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 3"]:
        """A point and the pen, of four numbers: one uniform for the bell, two normal for the place, one for the pen."""
        total = self.shares.exp().cumsum(-1)
        picked = (total <= chance[..., :1] * total[..., -1:]).sum(-1, keepdim=True)[..., None]  # *B 1 1
        mean, spread = (
            x.gather(-2, picked.expand(*picked.shape[:-1], 2))[..., 0, :] for x in (self.means, self.spread)
        )
        tilt, one, two = self.tilt.gather(-1, picked[..., 0])[..., 0], chance[..., 1], chance[..., 2]
        away = torch.stack([one, tilt * one + (1 - tilt.square()).sqrt() * two], -1)
        up: Bool[Tensor, ...] = chance[..., 3] < torch.sigmoid(self.lift)
        return torch.cat([mean + spread * away, up[..., None].to(mean.dtype)], -1)


class MixtureHead(nn.Module):
    """Vectors in, mixtures of `mixtures` bells out."""

    def __init__(self, width: int, mixtures: int) -> None:
        super().__init__()
        if mixtures < 1:
            raise BadInput(f"a mixture of {mixtures} bells has no density; give 1 or more")
        self.mixtures = mixtures
        self.numbers = nn.Linear(width, 6 * mixtures + 1)
        nn.init.normal_(self.numbers.weight, std=width**-0.5)
        nn.init.zeros_(self.numbers.bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> Mixture:
        """The mixture at every place."""
        p = self.mixtures
        numbers = self.numbers(x)
        numbers = numbers if numbers.dtype == torch.float64 else numbers.float()
        shares, means, spread, tilt, lift = numbers.split([p, 2 * p, 2 * p, p, 1], -1)
        return Mixture(
            torch.log_softmax(shares, -1),
            means.unflatten(-1, (p, 2)),
            spread.clamp(max=LARGEST).exp().unflatten(-1, (p, 2)) + FLOOR,
            0.999 * torch.tanh(tilt),
            lift[..., 0],
        )
