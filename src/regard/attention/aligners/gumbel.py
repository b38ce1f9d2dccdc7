"""Gumbel-softmax: a hard choice with the gradient of a soft one.

    sampled     s = argmax_m (log α_m + g_m),  g_m ~ Gumbel(0, 1)         the same as sampling s from α
    relaxed     y = softmax((log α + g) / τ)                               one-hot as τ -> 0
    output      one_hot(s) forwards, ∂y backwards                          "straight through"

It needs no reward and no baseline and trains in any task. The price is bias: the gradient is not that of the expected
log-likelihood, however many samples are averaged (benchmarks/reinforce.py measures it). A small τ has less bias and
more variance. In eval mode it takes the likeliest position.

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
    """Samples a position in training, with the gradient of the relaxed sample."""

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
                f"temperature must be above 0, got {temperature}; 1 is usual, near 0 gradients have a high variance"
            )
        self.temperature = temperature

    def sample(self, probabilities: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
        """Return the sample in value and the relaxed sample in gradient; masked positions get neither."""
        allowed = probabilities > 0
        noise = -torch.empty_like(probabilities).exponential_().log()
        scores = (torch.where(allowed, probabilities, 1.0).log() + noise) / self.temperature
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        relaxed = scores.softmax(-1) * allowed
        return one_hot(probabilities, scores.argmax(-1)) + (relaxed - relaxed.detach())  # zero to the bit
