"""RealFormer: add the scores of the layer below to the scores of this one, before the softmax.

    softmax       w = softmax(s^l)                  s^l = q k^T / √D                  O(N M D)
    realformer    w = softmax(r^l)                  r^l = s^l + r^(l-1), r^0 = s^0      O(N M D)

A residual path for attention scores: each layer refines the map below instead of making its own from nothing. The raw
scores r are handed upwards through the layer state under "scores", one path for self-attention and one for
cross-attention; a mask and a position bias, the same in every layer, are applied after the sum and not handed on.

He, Ravula, Kanagal, Ainslie: RealFormer: Transformer Likes Residual Attention. Findings of ACL 2021. arXiv:2012.11747
"""

from __future__ import annotations

import torch.nn.functional as F

from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction


class RealFormerAttention(Mechanism):
    """Softmax attention over the sum of the scores of this layer and of all layers below; `scale=None` is 1/√D."""

    traits = Traits(cost="N M D", paper="2012.11747", exact=False, headwise=False, family="with a prior")

    def __init__(self, dropout: Fraction = 0.0, scale: float | None = None) -> None:
        super().__init__()
        self.dropout, self.scale = dropout, scale

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        state = _require(layer_state)
        scores = self._scores(q, k, state)
        state.publish("scores", scores)
        weights = _softmax(scores, q, k, mask, bias).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        self.check(q, k, mask, bias)
        scores = self._scores(q, k, _require(layer_state), queries)
        return _softmax(scores, q, k, mask, bias, queries).to(q.dtype)

    def _scores(
        self, q: Tensor, k: Tensor, layer_state: LayerState, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        """Return the scores of this layer plus those of the layers below."""
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = upcast(q[:, :, rows] @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
        below = layer_state.previous("scores")
        if below is None:
            return scores
        if below[:, :, rows].shape != scores.shape:
            raise Unsupported(
                f"realformer adds the scores of the layer below, of shape {tuple(below.shape)}, to its own, of shape "
                f"{tuple(scores.shape)}; use it where layers have the same heads, queries and keys"
            )
        return scores + below[:, :, rows]

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}, scale={self.scale or '1/√D'}"


def _softmax(
    scores: Tensor, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, rows: Rows = slice(None)
) -> Tensor:
    scores = scores if bias is None else scores + bias.dense(rows)
    allowed = None if mask is None else mask.dense(k.shape[0], q.shape[2], k.shape[2], q.device, rows)
    return masked_softmax(scores, allowed)


def _require(layer_state: LayerState | None) -> LayerState:
    if layer_state is None:
        raise Unsupported(
            "realformer adds the scores of the layer below, which it reads from the LayerState, but got none; "
            "call it with layer_state=PassState().layer(0), as the blocks do"
        )
    return layer_state
