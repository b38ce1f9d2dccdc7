"""Longformer: sliding-window attention whose global tokens have projections of their own.

    local     o_n = Σ_m softmax_m(q_n·k_m / √D) v_m              |n - m| ≤ w/2, or m is global     O(N (w + g) D)
    global    o_n = Σ_m softmax_m(q^g_n·k^g_m / √D) v^g_m        all m, for the first g tokens     O(g N D)

Local and global attention answer different questions, so the rows of global tokens use a second set of queries, keys
and values. In the paper both sets start from the same weights; here each is initialised by its model. Other tokens read
a global token's ordinary key and value. When causal, a global token sees earlier global tokens only, and the paper has
none: there is one set.

Differs from the paper: the global tokens are the first `global_tokens` ones (a class token, a question), and all heads
of a layer have one dilation.

Beltagy, Peters, Cohan: Longformer: The Long-Document Transformer. 2020. arXiv:2004.05150
"""

from __future__ import annotations

from typing import Any

import torch

from regard.attention.mask import DenseMask, Mask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.mechanisms.window import SlidingWindowAttention
from regard.attention.multihead import MultiHeadAttention, transform_by_position
from regard.attention.projections import CrossProjection
from regard.attention.protocol import Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo, TensorBias
from regard.core.shapes import Float, Tensor
from regard.core.validation import Count, Fraction


class LongformerAttention(MultiHeadAttention):
    """Multi-head attention to about `window` neighbours and to the first `global_tokens` tokens, which see all.

    Args:
        window: keys that a query sees: half of them on either side or, if causal, all of them before it.
        dilation: distance between neighbouring keys of the window.
        global_tokens: how many of the first tokens see all and are seen by all.

    The other arguments are those of `MultiHeadAttention`.
    """

    traits = Traits(
        cost="N (w + g) D",
        paper="2004.05150",
        square=True,
        positional=True,
        exact=False,
        family="sparse by position",
    )

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        window: int = 256,
        dilation: int = 1,
        global_tokens: Count = 1,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        cross: bool = False,
        norms: Any = None,
        causal: bool = False,
    ) -> None:
        if cross:
            raise Unsupported("Longformer attends within one sequence; use another mechanism for cross-attention")
        if norms is not None and global_tokens and not causal:
            raise Unsupported("Longformer's global projections have no QK-norm; set global_tokens=0 or leave it out")
        super().__init__(
            width,
            heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            mechanism=SlidingWindowAttention(window, dilation, global_tokens, dropout, scale),
            bias=bias,
            out_bias=out_bias,
            norms=norms,
            causal=causal,
        )
        self.global_tokens = 0 if causal else global_tokens  # of those that have projections of their own
        if self.global_tokens:
            self.project_global = CrossProjection(width, heads, kv_heads, head_dim, bias)
            self.attend_global = SoftmaxAttention(dropout, scale)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        if context is not None:
            raise Unsupported("Longformer attends within one sequence and takes no context")
        q, k, v = self.project(x, None if positions is None else positions.query_vectors)
        q, k = transform_by_position(q, positions, True), transform_by_position(k, positions, False)
        heads = self.attend(q, k, v, mask, positions and positions.bias, layer_state=layer_state)
        if self.global_tokens:
            rows = self._global_rows(x, mask, positions, layer_state)
            heads = torch.cat([rows, heads[:, :, rows.shape[2] :]], 2)
        out: Tensor = self.join(heads)
        return out

    def _global_rows(
        self, x: Tensor, mask: Mask | None, positions: PositionInfo | None, layer_state: LayerState | None
    ) -> Float[Tensor, "B H g D"]:
        """Attend from the global tokens to all tokens, with their own projections."""
        (batch, n, _), count = x.shape, min(self.global_tokens, x.shape[1])
        first, bias, vectors = slice(count), None, None
        if positions is not None:
            vectors = positions.query_vectors
            bias = None if positions.bias is None else TensorBias(positions.bias.dense(first))
        q = self.project_global.project_q(x[:, first], None if vectors is None else vectors[:, first])
        k, v = self.project_global.project_kv(x, vectors)
        if positions is not None and positions.qk_transform is not None:
            q = positions.qk_transform.transform(q, positions.queries[:, first])
            k = positions.qk_transform.transform(k, positions.keys)
        seen = None if mask is None else DenseMask(mask.dense(batch, n, n, x.device, first)[:, 0])
        out: Tensor = self.attend_global(q, k, v, seen, bias, layer_state=layer_state)
        return out

    def extra_repr(self) -> str:
        return f"global_tokens={self.global_tokens}"
