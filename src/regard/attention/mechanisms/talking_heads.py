"""Talking heads: heads are mixed with one another before and after the softmax.

    softmax          w_h = softmax(s_h)                                        s_h = q_h k_h^T / √D      O(N M D)
    talking_heads    w_h = Σ_j P_w[h, j] softmax(Σ_i P_l[j, i] s_i)                          O(N M (D + H))

Heads are otherwise independent, and their small width limits what each can compare. Two small learned matrices, across
heads and shared by all pairs of tokens, let the scores of all heads contribute to each map, and the maps of all to each
output; rows of the result need not sum to one.

A mask, and a position bias, enter between the first matrix and the softmax. `softmax_heads` is the number of maps
between the two (the paper's h, where h_k = h_v = H).

Shazeer, Lan, Cheng, Ding, Hou: Talking-Heads Attention. 2020. arXiv:2003.02436
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.dense import DenseAttention
from regard.attention.protocol import Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction


class TalkingHeadsAttention(DenseAttention):
    """Softmax attention whose scores and weights are mixed across heads; `softmax_heads=None`: as many as heads."""

    traits = Traits(
        cost="N M (D + H)", paper="2003.02436", exact=False, headwise=False, normalised=False, family="heads"
    )

    def __init__(
        self, heads: int, softmax_heads: int | None = None, dropout: Fraction = 0.0, scale: float | None = None
    ) -> None:
        super().__init__(dropout, scale)
        between = heads if softmax_heads is None else softmax_heads
        self.score_mix = nn.Parameter(torch.randn(between, heads) * heads**-0.5)  # P_l
        self.weight_mix = nn.Parameter(torch.randn(heads, between) * between**-0.5)  # P_w

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B J rows M"]:
        return _mix(self.score_mix, super().scores(q, k, mask, layer_state, rows))

    def weight_matrix(
        self, scores: Tensor, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        return _mix(self.weight_mix, super().weight_matrix(scores, q, k, mask, bias, rows))


def _mix(matrix: Float[Tensor, "J H"], maps: Float[Tensor, "B H N M"]) -> Float[Tensor, "B J N M"]:
    return torch.einsum("jh,bhnm->bjnm", upcast(matrix), maps)
