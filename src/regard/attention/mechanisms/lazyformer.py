"""LazyFormer: one attention map for several layers.

    softmax       w^l = softmax(s^l)                                 s^l = q k^T / √D            O(N M D)
    lazyformer    w^l = w^(l-1),  and softmax(s^l) in every `group`-th layer                     O(N M E)

Layers come in groups; the first of a group computes the map and the others apply it to values of their own, which saves
the products q k^T and the softmax. The map is handed upwards through the layer state under "weights".

The full text of the paper was not at hand. Our choices: q and k of the lazy layers are made by the projections as ever,
and ignored; each layer draws its own dropout of the map, if attention dropout is set.

Ying, Ke, He, Liu: LazyFormer: Self Attention with Lazy Update. 2021. arXiv:2102.12702
"""

from __future__ import annotations

from regard.attention.mask import Mask
from regard.attention.mechanisms.dense import DenseAttention
from regard.attention.mechanisms.realformer import require
from regard.attention.protocol import Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction


class LazyFormerAttention(DenseAttention):
    """Softmax attention of which `group` layers in a row share the map; mask and bias are those of the first."""

    traits = Traits(
        cost="N M D", paper="2102.12702", exact=False, headwise=False, family="with a prior", limit="group=1"
    )

    def __init__(self, group: int = 2, dropout: Fraction = 0.0, scale: float | None = None) -> None:
        super().__init__(dropout, scale)
        self.group = group

    def attention_map(
        self,
        q: Tensor,
        k: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None,
        rows: Rows = slice(None),
    ) -> tuple[Float[Tensor, "B J rows M"], Float[Tensor, "B H rows M"]]:
        state = require(layer_state, "lazyformer")
        below: Tensor | None = state.previous("weights")
        if state.depth % self.group == 0 or below is None:
            return super().attention_map(q, k, mask, bias, layer_state, rows)
        if below.shape != (*q.shape[:3], k.shape[2]):
            raise Unsupported(
                f"lazyformer applies the map of the layer below, of shape {tuple(below.shape)}, but this layer has "
                f"{q.shape[1]} heads, {q.shape[2]} queries and {k.shape[2]} keys; use it where they are the same"
            )
        return below[:, :, rows], below[:, :, rows]  # the scores are not needed

    def publish(self, scores: Tensor, weights: Tensor, layer_state: LayerState | None) -> None:
        require(layer_state, "lazyformer").publish("weights", weights)

    def extra_repr(self) -> str:
        return f"group={self.group}, {super().extra_repr()}"
