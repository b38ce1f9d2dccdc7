"""Gaussian-mixture window: a few Gaussians move forward over the memory, as far as the state says.

    gmm         w_m = Σ_g α_g exp(-β_g (κ_g - m)²)       κ_g = κ_g(before) + exp(κ̂_g)       O(K M P)
    additive    w_m = softmax of v · tanh(W s + U h_m)                                       O(K M A)

α, β and κ̂ of all P Gaussians come from the state by a linear map and an exponential: weight, precision and step. The
content of the memory plays no part; positions count from 1, κ starts at 0 and only grows. The weights are not
normalised: past the end they fade to zero, which tells a decoder that it has finished.

Graves: Generating Sequences With Recurrent Neural Networks. 2013. arXiv:1308.0850 (equations 46 to 51)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from regard.attention.aligners.base import AlignerBase
from regard.attention.masked_softmax import upcast
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor

_MAX_EXPONENT = 15.0  # e¹⁵ = 3 million positions a step; products stay within float32


class GMMAligner(AlignerBase):
    """Gaussian-mixture attention with the state κ, B K P; `step` is the initial movement in positions.

    About 1 for spelling and sounds; for strokes or frames the ratio of input positions to output steps.
    """

    normalised = False
    monotonic = True

    def __init__(self, query_width: int, mixtures: int = 5, step: float = 1.0) -> None:
        super().__init__()
        if mixtures < 1 or not step > 0:
            raise BadInput(f"a Gaussian-mixture window needs mixtures >= 1 and step > 0, got {mixtures} and {step}")
        self.mixtures, self.step = mixtures, step
        self.mixture = nn.Linear(query_width, 3 * mixtures)  # α̂, β̂, κ̂
        self.reset()

    def reset(self) -> None:
        """Initialise to total weight 1 and a movement of `step` positions, whatever the state."""
        nn.init.normal_(self.mixture.weight, std=0.1 * self.mixture.in_features**-0.5)
        with torch.no_grad():
            for part, first in zip(self.mixture.bias.chunk(3), (1 / self.mixtures, 1.0, self.step), strict=True):
                part.fill_(math.log(first))

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M 0"]:
        """Return an empty tensor: only the length of the memory matters."""
        return memory[..., :0]

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        alpha, beta, delta = upcast(self.mixture(query)).clamp(max=_MAX_EXPONENT).exp().chunk(3, -1)  # B K P each
        kappa = delta if state is None else state + delta
        places = torch.arange(1, keys.shape[1] + 1, device=keys.device, dtype=kappa.dtype)
        away = kappa[..., None] - places  # B K P M
        weights = (alpha[..., None] * torch.exp(-beta[..., None] * away.square())).sum(2)
        if mask is not None:
            weights = weights * mask[:, None]
        return weights.to(keys.dtype), kappa

    def centres(self, state: Float[Tensor, "B K P"]) -> Float[Tensor, "B K P"]:
        """Return the means of the Gaussians, in positions counted from 0; for pictures."""
        return state - 1

    def extra_repr(self) -> str:
        return f"mixtures={self.mixtures}, step={self.step}"
