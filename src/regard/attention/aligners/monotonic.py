"""Monotonic attention: from its last position it moves forward until it decides to stop.

    monotonic   w_m = p_m Σ_{i<=m} before_i Π_{j=i}^{m-1} (1 - p_j)                        O(K M (A + log M))
                p_m = σ(g v/|v| · tanh(W s + U h_m + b) + r)
    additive    w_m = softmax of v · tanh(W s + U h_m)                                     O(K M A)

At every position it stops with probability p_m or goes on, and never goes back. In training w is the expected
alignment: the probability to stop at m, over all positions where it may have stopped before. In eval mode it decides (p
> 1/2), and one position has all the weight. Noise before the sigmoid in training drives p to 0 or 1, so that little is
lost by deciding. Past the end it attends to nothing from then on: rows sum to at most one.

The sum obeys q_m = before_m + (1 - p_{m-1}) q_{m-1}, w = p q. It is computed for all positions at once (core.scan), in
log2 M rounds that only multiply and add numbers in [0, 1]; the closed form divides by products that vanish.

Raffel, Luong, Liu, Weiss, Eck: Online and Linear-Time Attention by Enforcing Monotonic Alignments. ICML 2017.
arXiv:1704.00784
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.aligners.additive import AdditiveAlignerBase
from regard.attention.masked_softmax import upcast
from regard.core.scan import scan, shift_right
from regard.core.shapes import Bool, Float, Tensor
from regard.core.validation import Range


class MonotonicAligner(AdditiveAlignerBase):
    """Monotonic attention with the last weights as its state, B K M.

    `offset` is the initial r: the lower, the further it moves before anything is learned (it stops with probability
    σ(r): -1 for letters and words, -4 for frames). `noise` is the standard deviation of the training noise.
    """

    normalised = False
    monotonic = True

    def __init__(
        self,
        query_width: int,
        memory_width: int,
        width: int,
        offset: Annotated[float, Range(low=-30, high=30)] = -1.0,
        noise: Annotated[float, Range(low=0)] = 1.0,
    ) -> None:
        super().__init__(query_width, memory_width, width)
        self.noise = noise
        self.bias = nn.Parameter(torch.zeros(width))  # b
        self.gain = nn.Parameter(torch.tensor(width**-0.5))  # g
        self.offset = nn.Parameter(torch.tensor(float(offset)))  # r

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        keys: Tensor = self.memory(memory)
        return keys + self.bias.to(keys.dtype)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        scores = upcast(self.scores(query, keys)) * (self.gain / self.score.weight.norm()) + self.offset
        if self.training:
            stop = torch.sigmoid(scores + self.noise * torch.randn_like(scores))
        else:
            stop = (scores > 0).to(scores.dtype)
        if mask is not None:
            stop = stop * mask[:, None]
        if state is None:  # it starts at the first position
            state = F.pad(stop.new_ones(1), (0, stop.shape[-1] - 1)).expand_as(stop)
        weights = expected_alignment(stop, state)
        return weights.to(keys.dtype), weights

    def extra_repr(self) -> str:
        return f"noise={self.noise}"


def expected_alignment(stop: Float[Tensor, "B K M"], before: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
    """Return the probability to stop at each position, given that of stopping once there and the last alignment."""
    return stop * scan(shift_right(1 - stop), before)
