"""Disagreement regularisation: softmax attention whose heads are trained to differ.

    softmax         w = softmax(s)                                            s = q k^T / √D      O(N M D)
    disagreement    the same, and   loss += λ_v Σ cos(v_i, v_j) + λ_w Σ w_i·w_j + λ_o Σ cos(o_i, o_j)

Nothing makes heads look at different things; these terms do, by pulling apart their values, their attended positions or
their outputs. They are means over pairs of heads and real tokens, added in training as the loss term "disagreement".

Positions need the full matrix a second time. Differs from the paper: with grouped heads, the values of the key heads
are compared. The default weights are ours.

Li, Tu, Yang, Lyu, Zhang: Multi-Head Attention with Disagreement Regularization. EMNLP 2018. arXiv:1810.10183
"""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.protocol import Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Bool, Float, Tensor
from regard.core.validation import Fraction, Range

Weight = Annotated[float, Range(low=0)]


class DisagreementAttention(SoftmaxAttention):
    """Softmax attention; `subspaces`, `positions` and `outputs` are the weights of the three terms of its loss."""

    traits = Traits(cost="N M D", paper="1810.10183", family="heads")

    def __init__(
        self,
        subspaces: Weight = 0.0,
        positions: Weight = 0.0,
        outputs: Weight = 1.0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(dropout, scale)
        self.subspaces, self.positions, self.outputs = subspaces, positions, outputs

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        out = super().mix(q, k, v, mask, bias)
        if layer_state is not None and self.training:
            keys = None if mask is None or mask.padding is None else mask.padding.real(k.shape[2])
            queries = keys if q.shape[2] == k.shape[2] else None
            loss = out.new_zeros(())
            if self.subspaces:
                loss = loss + self.subspaces * head_similarity(v, keys)
            if self.positions:
                loss = loss + self.positions * attention_overlap(self.weights(q, k, mask, bias), queries)
            if self.outputs:
                loss = loss + self.outputs * head_similarity(out, queries)
            layer_state.add_loss("disagreement", loss)
        return out

    def extra_repr(self) -> str:
        terms = f"subspaces={self.subspaces}, positions={self.positions}, outputs={self.outputs}"
        return f"{terms}, {super().extra_repr()}"


def head_similarity(x: Float[Tensor, "B H N D"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, ""]:
    """Return the mean cosine between the vectors of two heads, over all pairs of heads and all real tokens."""
    unit = F.normalize(upcast(x), dim=-1)
    return _mean(unit.mean(1).square().sum(-1), real)  # the mean over all pairs is the square of the mean


def attention_overlap(weights: Float[Tensor, "B H N M"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, ""]:
    """Return Σ_m w_i,m w_j,m, how much two heads attend to the same keys, as a mean like `head_similarity`."""
    return _mean(upcast(weights).mean(1).square().sum(-1), real)


def _mean(x: Float[Tensor, "B N"], real: Bool[Tensor, "B N"] | None) -> Float[Tensor, ""]:
    return x.mean() if real is None else (x * real).sum() / real.sum().clamp_min(1)
