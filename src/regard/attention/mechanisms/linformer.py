"""Linformer: project the keys and values along the sequence to a few, by learned matrices.

    softmax      o = softmax(q kᵀ / √D) v                                O(N M D)
    linformer    o = softmax(q (E k)ᵀ / √D) (F v)                        O((N + M) R D)

Softmax matrices are close to low rank, so R weighted sums of the keys, and of the values, may stand for all M of them.
E and F are R x `length` and are shared as in the paper: "none" (a pair for each head), "headwise" (a pair for all
heads), "kv" (E = F), "layerwise" (one matrix for all layers: that of the first, handed up through the layer state).

Since every row of E looks at the whole sequence, there is no causal form. Shorter sequences use the first M columns,
and padding is set to zero before it is projected. With E = F = I it is softmax attention.

Wang, Li, Khabsa, Fang, Ma: Linformer: Self-Attention with Linear Complexity. 2020. arXiv:2006.04768
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax
from regard.attention.mechanisms.dense import scaled_products
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import RegardError, UnknownName, Unsupported, did_you_mean
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Tensor
from regard.core.validation import Fraction

SHARING = ("none", "headwise", "kv", "layerwise")


class LinformerAttention(Mechanism):
    """Softmax attention to `rank` learned mixtures of keys and values, of sequences of up to `length` tokens."""

    traits = Traits(
        cost="(N + M) R D",
        paper="2006.04768",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        headwise=False,
        normalised=False,
        positional=True,
        family="fewer queries or keys",
    )

    def __init__(
        self,
        heads: int,
        length: int | None = None,
        rank: int = 64,
        sharing: str = "headwise",
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if sharing not in SHARING:
            raise UnknownName(f"linformer has no sharing '{sharing}'; {did_you_mean(sharing, SHARING)}")
        if length is None:
            raise RegardError("linformer learns matrices over the sequence and needs its length: write length=...")
        self.sharing, self.dropout, self.scale = sharing, dropout, scale
        shape = heads if sharing == "none" else 1, rank, length
        self.project_keys = nn.Parameter(_xavier(shape))
        self.project_values = None if sharing in ("kv", "layerwise") else nn.Parameter(_xavier(shape))

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        m, length = k.shape[2], self.project_keys.shape[-1]
        if m > length:
            raise Unsupported(f"linformer was built for up to {length} keys, got {m}; build it with length={m} or more")
        if mask is not None and mask.padding is not None:
            real = mask.padding.real(m)[:, None, :, None]
            k, v = k * real, v * real
        if self.sharing == "none":
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        to_keys, to_values = (x[..., :m].to(v.dtype) for x in self._projections(layer_state))
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (to_keys @ k, to_values @ v))
        weights = masked_softmax(scaled_products(q, k, self.scale), None).to(v.dtype)
        return (F.dropout(weights, self.dropout) if self.dropout and self.training else weights) @ v

    def _projections(self, layer_state: LayerState | None) -> tuple[Tensor, Tensor]:
        """Return E and F of this layer, heads R length."""
        if self.sharing != "layerwise":
            return self.project_keys, self.project_keys if self.project_values is None else self.project_values
        if layer_state is None:
            raise Unsupported("linformer(sharing='layerwise') reads the matrix of the first layer from the LayerState")
        below = layer_state.previous("linformer")
        shared = self.project_keys if below is None else below
        layer_state.publish("linformer", shared)
        return shared, shared

    def extra_repr(self) -> str:
        _, rank, length = self.project_keys.shape
        return f"rank={rank}, length={length}, sharing={self.sharing}"


def _xavier(shape: tuple[int, int, int]) -> Tensor:
    """Return matrices as the authors' code begins them: Xavier's uniform numbers over √2."""
    bound = (3 / (shape[1] + shape[2])) ** 0.5
    return torch.empty(shape).uniform_(-bound, bound)
