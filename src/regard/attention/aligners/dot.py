"""Dot-product attention: the state is the query, the memory the keys.

    dot         e_m = s · h_m                     O(K M C)      no parameters
    additive    e_m = v · tanh(W s + U h_m)       O(K M A)

One product for all positions and queries. State and memory must have the same width; since nothing is learned here, the
recurrent networks on both sides must learn compatible vectors.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025
"""

from __future__ import annotations

from regard.attention.aligners.base import StatelessAligner, check_same_width
from regard.core.shapes import Float, Tensor


class DotAligner(StatelessAligner):
    """Dot-product scores, without parameters."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        check_same_width("dot", query_width, memory_width)

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M C"]:
        return memory

    def scores(self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M Q"]) -> Float[Tensor, "B K M"]:
        return query @ keys.mT
