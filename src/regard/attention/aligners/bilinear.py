"""Bilinear attention ("general"): a learned matrix between the state and the memory.

    bilinear    e_m = s · W h_m                   O(K M Q)      Q C parameters
    dot         e_m = s · h_m                     W = 1
    additive    e_m = v · tanh(W s + U h_m)       O(K M A)

W h is computed once for each input, so a step is one product, as for the dot product; the two may differ in width.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025
"""

from __future__ import annotations

from torch import nn

from regard.attention.aligners.base import StatelessAligner
from regard.core.shapes import Float, Tensor


class BilinearAligner(StatelessAligner):
    """Bilinear scores; `query_width` and `memory_width` are those of s and h."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.memory = nn.Linear(memory_width, query_width, bias=False)  # W

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M Q"]:
        keys: Tensor = self.memory(memory)
        return keys

    def scores(self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M Q"]) -> Float[Tensor, "B K M"]:
        return query @ keys.mT
