"""Scaled dot-product attention: the score of the Transformer, one step at a time.

    scaled dot  e_m = s · h_m / √C                O(K M C)      no parameters
    dot         e_m = s · h_m                     whose spread grows as √C, until the softmax selects one position
    additive    e_m = v · tanh(W s + U h_m)       O(K M A)

Equal to the softmax mechanism with one head. State and memory must have the same width.

Vaswani et al.: Attention Is All You Need. NeurIPS 2017. arXiv:1706.03762
"""

from __future__ import annotations

from regard.attention.aligners.base import StatelessAligner, check_same_width
from regard.core.shapes import Float, Tensor


class ScaledDotAligner(StatelessAligner):
    """Scaled dot-product scores, without parameters."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        check_same_width("scaled_dot", query_width, memory_width)

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M C"]:
        return memory * memory.shape[-1] ** -0.5

    def scores(self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M Q"]) -> Float[Tensor, "B K M"]:
        return query @ keys.mT
