"""Gaussian-mixture window: a few bells slide forward over the memory, and only the state says how far.

    gmm         w_m = Σ_g α_g exp(-β_g (κ_g - m)²)       κ_g = κ_g(before) + exp(κ̂_g)       O(K M P)
    additive    w_m = softmax of v · tanh(W s + U h_m)                                       O(K M A)

α, β and κ̂ of all P bells come from the state by one linear map and an exponential: how much, how narrow, how far on.
What is in the memory plays no part, places count from 1, κ begins at 0 and only grows: the centre never moves back. The
weights are not normalised: past the end they fade to nothing, and that is how a writer knows it has finished.

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

_MAX_EXPONENT = 15.0  # of the exponents: e¹⁵ = 3 million places a step, and no product of them leaves float32


class GMMAligner(AlignerBase):
    """Remembers κ, B K P. `replay_step` is how many places a step moves on before anything is learned.

    About one for spelling and sounds; for strokes or frames the number of input places over that of output steps.
    """

    normalised = False
    monotonic = True

    def __init__(self, query_width: int, mixtures: int = 5, step: float = 1.0) -> None:
        super().__init__()
        if mixtures < 1 or not step > 0:
            raise BadInput(f"a Gaussian-mixture window needs mixtures >= 1 and step > 0, not {mixtures} and {step}")
        self.mixtures, self.step = mixtures, step
        self.mixture = nn.Linear(query_width, 3 * mixtures)  # α̂, β̂, κ̂
        self.reset()

    def reset(self) -> None:
        """Fresh bells: of height 1 together, and moving `replay_step` places at a time, whatever the state."""
        nn.init.normal_(self.mixture.weight, std=0.1 * self.mixture.in_features**-0.5)
        with torch.no_grad():
            for part, first in zip(self.mixture.bias.chunk(3), (1 / self.mixtures, 1.0, self.step), strict=True):
                part.fill_(math.log(first))

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M 0"]:
        """Nothing of the memory but its length."""
        return memory[..., :0]

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """The height of all bells over each place; the state is where they stand now."""
        alpha, beta, delta = upcast(self.mixture(query)).clamp(max=_MAX_EXPONENT).exp().chunk(3, -1)  # B K P each
        kappa = delta if state is None else state + delta
        places = torch.arange(1, keys.shape[1] + 1, device=keys.device, dtype=kappa.dtype)
        away = kappa[..., None] - places  # B K P M
        weights = (alpha[..., None] * torch.exp(-beta[..., None] * away.square())).sum(2)
        if mask is not None:
            weights = weights * mask[:, None]
        return weights.to(keys.dtype), kappa

    def centres(self, state: Float[Tensor, "B K P"]) -> Float[Tensor, "B K P"]:
        """Where the bells stand, in places counted from 0; for pictures."""
        return state - 1

    def extra_repr(self) -> str:
        """What a printed model shows."""
        return f"mixtures={self.mixtures}, step={self.step}"
