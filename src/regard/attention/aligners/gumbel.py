"""Gumbel-softmax: a hard choice whose gradient is that of a soft one nearby.

    drawn       s = argmax_m (log α_m + g_m),  g_m ~ Gumbel(0, 1)         the same as drawing s from α
    nearby      y = softmax((log α + g) / τ)                               one-hot as τ -> 0
    given on    one_hot(s) forwards, ∂y backwards                          "straight through"

No reward and no baseline are needed: it trains in any task as it is. The price is a bias: what comes back is not the
gradient of the expected log-likelihood, however many draws are averaged (benchmarks/reinforce.py measures it). A small
τ has less bias and more variance. In eval mode it takes the likeliest place.

Jang, Gu, Poole: Categorical Reparameterization with Gumbel-Softmax. ICLR 2017. arXiv:1611.01144
"""

from __future__ import annotations

from typing import Annotated

import torch

from regard.attention.aligners.hard import SamplingAligner, one_hot
from regard.core.errors import RegardError
from regard.core.shapes import Float, Tensor
from regard.core.validation import Range


class GumbelAligner(SamplingAligner):
    """Draws a place in training and lets the gradient pass through the softened draw."""

    def __init__(
        self,
        query_width: int,
        memory_width: int,
        width: int,
        base: str = "additive",
        temperature: Annotated[float, Range(above=0)] = 1.0,
    ) -> None:
        super().__init__(query_width, memory_width, width, base)
        if temperature <= 0:
            raise RegardError(
                f"temperature={temperature} must be above zero; near zero the gradient is wild, 1 is usual"
            )
        self.temperature = temperature

    def sample(self, probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """One-hot in value, the softened draw in gradient; what has no chance is never drawn and gets no gradient."""
        allowed = probabilities > 0
        noise = -torch.empty_like(probabilities).exponential_().log()
        scores = (torch.where(allowed, probabilities, 1.0).log() + noise) / self.temperature
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        near = scores.softmax(-1) * allowed
        return one_hot(probabilities, scores.argmax(-1)) + (near - near.detach())  # the bracket is zero to the bit
