"""Monotonic attention: from where it stopped last, it walks on until it decides to stop.

    monotonic   w_m = p_m Σ_{i<=m} before_i Π_{j=i}^{m-1} (1 - p_j)                        O(K M (A + log M))
                p_m = σ(g v/|v| · tanh(W s + U h_m + b) + r)
    additive    w_m = softmax of v · tanh(W s + U h_m)                                     O(K M A)

At every place it stops with probability p_m or goes on, and never goes back. In training w is the expected alignment:
the chance to stop at m, over where it may have stopped before. In eval mode it decides (p > 1/2), and one place has all
the weight. Noise before the sigmoid in training makes p either near 0 or near 1, so that little is lost by deciding.
Where it runs past the end it has looked at nothing, and so it stays: rows sum to at most one.

The sum obeys q_m = before_m + (1 - p_{m-1}) q_{m-1}, w = p q. It is taken for all places at once (core.scan), in log2 M
rounds that only multiply and add numbers in [0, 1]; nothing is divided by a product that vanishes, as it is in the
closed form by cumulative products.

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
    """Remembers the last weights, B K M.

    `offset` is r at the start: the lower, the further it walks before anything is learned (a place is stopped at with
    probability σ(r): -1 for letters and words, -4 for frames). `noise` is the deviation of the training noise.
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
        """U h + b, once for each input."""
        keys: Tensor = self.memory(memory)
        return keys + self.bias.to(keys.dtype)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Where each query stops, or is expected to; the state is these weights."""
        scores = upcast(self.scores(query, keys)) * (self.gain / self.score.weight.norm()) + self.offset
        if self.training:
            stop = torch.sigmoid(scores + self.noise * torch.randn_like(scores))
        else:
            stop = (scores > 0).to(scores.dtype)
        if mask is not None:
            stop = stop * mask[:, None]
        if state is None:  # it stands at the first place
            state = F.pad(stop.new_ones(1), (0, stop.shape[-1] - 1)).expand_as(stop)
        weights = expected_alignment(stop, state)
        return weights.to(keys.dtype), weights

    def extra_repr(self) -> str:
        """What a printed model shows."""
        return f"noise={self.noise}"


def expected_alignment(stop: Float[Tensor, "B K M"], before: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M"]:
    """The chance to stop at each place, from the chance to do so once there and from where one stood before."""
    return stop * scan(shift_right(1 - stop), before)
