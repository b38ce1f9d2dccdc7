"""RealFormer: add the scores of the layer below to the scores of this one, before the softmax.

    softmax       w = softmax(s^l)                  s^l = q k^T / √D                  O(N M D)
    realformer    w = softmax(r^l)                  r^l = s^l + r^(l-1), r^0 = s^0      O(N M D)

A residual path for attention scores: each layer refines the map below instead of making its own from nothing. The raw
scores r are handed upwards through the layer state under "scores", one path for self-attention and one for
cross-attention; a mask and a position bias, the same in every layer, are applied after the sum and not handed on.

He, Ravula, Kanagal, Ainslie: RealFormer: Transformer Likes Residual Attention. Findings of ACL 2021. arXiv:2012.11747
"""

from __future__ import annotations

from regard.attention.mask import Mask
from regard.attention.mechanisms.dense import DenseAttention
from regard.attention.protocol import Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.shapes import Float, Rows, Tensor


class RealFormerAttention(DenseAttention):
    """Softmax attention over the sum of the scores of this layer and of all layers below; `scale=None` is 1/√D."""

    traits = Traits(cost="N M D", paper="2012.11747", exact=False, headwise=False, family="with a prior")

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        scores = super().scores(q, k, mask, layer_state, rows)
        below = below_scores(layer_state, scores, rows, "realformer")
        return scores if below is None else scores + below

    def publish(self, scores: Tensor, weights: Tensor, layer_state: LayerState | None) -> None:
        require(layer_state, "realformer").publish("scores", scores)


def below_scores(
    layer_state: LayerState | None, scores: Float[Tensor, "B H rows M"], rows: Rows, name: str
) -> Float[Tensor, "B H rows M"] | None:
    """Return the scores that the layer below published, of the query rows; None in the first layer."""
    below: Tensor | None = require(layer_state, name).previous("scores")
    if below is None:
        return None
    if below[:, :, rows].shape != scores.shape:
        raise Unsupported(
            f"{name} adds the scores of the layer below, of shape {tuple(below.shape)}, to its own, of shape "
            f"{tuple(scores.shape)}; use it where layers have the same heads, queries and keys"
        )
    return below[:, :, rows]


def require(layer_state: LayerState | None, name: str) -> LayerState:
    """Return the layer state, or refuse to run without one."""
    if layer_state is None:
        raise Unsupported(
            f"{name} reads what the layer below made from the LayerState, but got none; "
            "call it with layer_state=PassState().layer(0), as the blocks do"
        )
    return layer_state
