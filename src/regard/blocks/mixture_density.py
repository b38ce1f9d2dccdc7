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

MIN_STD = 0.02  # of σ: two hundredths of the unit that points are counted in
MAX_DISTANCE = 1e6  # from a mean, in the same unit
MAX_LOG_STD = 12.0  # of σ̂


class GaussianMixture(NamedTuple):
    """What may come next: P bells in the plane, and how likely the pen is lifted after the point."""

    log_weights: Float[Tensor, "*B P"]  # log π, which sum to one
    means: Float[Tensor, "*B P 2"]
    std: Float[Tensor, "*B P 2"]  # σ
    correlation: Float[Tensor, "*B P"]  # ρ
    pen_logit: Float[Tensor, "*B"]  # ê: the logit of the pen's lifting

    def log_prob(self, points: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B"]:
        """The logarithm of the density of points, pen or no pen."""
        # bounded before it is divided: beyond, a gradient would be zero times infinity
        away = (points.to(self.means.dtype)[..., None, :] - self.means).clamp(-MAX_DISTANCE, MAX_DISTANCE)
        u, v = (away / self.std).unbind(-1)
        narrow = 1 - self.correlation.square()
        squares = u.square() + (v - self.correlation * u).square() / narrow
        log_probs = -0.5 * (squares + narrow.log()) - self.std.log().sum(-1) - math.log(2 * math.pi)
        return torch.logsumexp(self.log_weights + log_probs, -1)

    def pen_log_prob(self, up: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """The logarithm of the probability that the pen does this: 1 lifted, 0 not."""
        return -F.binary_cross_entropy_with_logits(self.pen_logit, up.to(self.pen_logit.dtype), reduction="none")

    def sharpened(self, bias: float) -> GaussianMixture:
        """The same, surer of itself."""
        log_weights = torch.log_softmax(self.log_weights * (1 + bias), -1)
        return self._replace(
            log_weights=log_weights, std=self.std * math.exp(-bias), pen_logit=self.pen_logit * (1 + bias)
        )

    def sample(self, noise: Float[Tensor, "*B 4"]) -> Float[Tensor, "*B 3"]:
        """A point and the pen, of four numbers: one uniform for the bell, two normal for the place, one for the pen."""
        total = self.log_weights.exp().cumsum(-1)
        picked = (total <= noise[..., :1] * total[..., -1:]).sum(-1, keepdim=True)[..., None]  # *B 1 1
        mean, std = (x.gather(-2, picked.expand(*picked.shape[:-1], 2))[..., 0, :] for x in (self.means, self.std))
        correlation, one, two = self.correlation.gather(-1, picked[..., 0])[..., 0], noise[..., 1], noise[..., 2]
        away = torch.stack([one, correlation * one + (1 - correlation.square()).sqrt() * two], -1)
        up: Bool[Tensor, ...] = noise[..., 3] < torch.sigmoid(self.pen_logit)
        return torch.cat([mean + std * away, up[..., None].to(mean.dtype)], -1)


class MixtureDensityHead(nn.Module):
    """Vectors in, mixtures of `mixtures` bells out."""

    def __init__(self, width: int, mixtures: int) -> None:
        super().__init__()
        if mixtures < 1:
            raise BadInput(f"a mixture of {mixtures} bells has no density; give 1 or more")
        self.mixtures = mixtures
        self.params = nn.Linear(width, 6 * mixtures + 1)
        nn.init.normal_(self.params.weight, std=width**-0.5)
        nn.init.zeros_(self.params.bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> GaussianMixture:
        """The mixture at every place."""
        p = self.mixtures
        numbers = self.params(x)
        numbers = numbers if numbers.dtype == torch.float64 else numbers.float()
        log_weights, means, std, correlation, pen_logit = numbers.split([p, 2 * p, 2 * p, p, 1], -1)
        return GaussianMixture(
            torch.log_softmax(log_weights, -1),
            means.unflatten(-1, (p, 2)),
            std.clamp(max=MAX_LOG_STD).exp().unflatten(-1, (p, 2)) + MIN_STD,
            0.999 * torch.tanh(correlation),
            pen_logit[..., 0],
        )
