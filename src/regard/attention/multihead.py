"""Multi-head attention: project to queries, keys and values, attend per head, project back.

    q, k, v = x W_q, c W_k, c W_v
    head_h  = attend(q_h, k_h, v_h)      any mechanism of attention/mechanisms
    out     = [head_1 ... head_H] W_o

Self-attention uses x as its own context c. With kv_heads < heads, several query heads share a key/value head
(kv_heads = 1 is multi-query attention). This is the only place where heads are split and joined.

Vaswani et al. 2017, arXiv:1706.03762; Shazeer 2019 (multi-query), arXiv:1911.02150; Ainslie et al. 2023
(grouped-query), arXiv:2305.13245
"""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.attention.joins import JOINS
from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.mechanisms import MECHANISMS
from regard.attention.projections import PROJECTIONS, KeyValue
from regard.attention.protocol import Traits
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part
from regard.core.validation import Fraction


class MultiHeadAttention(nn.Module):
    """Mix tokens by attention.

    Args:
        width: size C of the token vectors.
        heads: number of query heads H.
        kv_heads: number of key/value heads; must divide `heads`. Default: `heads`.
        head_dim: size D of a head. Default: width // heads.
        mechanism: name or spec of the attention mechanism, e.g. "linear(chunk=32)", or a module of one's own.
        projection: how q, k, v are made; None: "cross" with `cross`, else what the mechanism asks for.
        join: how heads are combined.
        bias: whether the projections have biases; `out_bias` overrides it for the output projection.
        dropout, scale: of the attention weights and of the scores (None: 1/√D), where the mechanism has them.
        cross: attend to a context instead of to x itself.
        norms: norms of q and k over the width of a head.
        causal, length, layer: what the layer's place demands, and its depth; handed to the parts that take them.
        grid, prefix: of an image's tokens, rows and columns, and how many tokens stand before them; None: not a grid.
    """

    traits = Traits(cost="N M D", paper="1706.03762")  # as a mixer of softmax attention

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        mechanism: Any = "softmax",
        projection: str | None = None,
        join: str = "concat",
        bias: bool = True,
        out_bias: bool | None = None,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        cross: bool = False,
        norms: tuple[nn.Module, nn.Module] | None = None,
        causal: bool = False,
        length: int | None = None,
        layer: int = 0,
        grid: tuple[int, int] | None = None,
        prefix: int = 0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if head_dim is None and width % heads:
            raise RegardError(f"width {width} is not divisible by {heads} heads; change one of them, or set head_dim")
        if heads % kv_heads:
            raise RegardError(f"{heads} heads are not divisible by {kv_heads} key heads; change heads or kv_heads")
        self.sizes: dict[str, Any] = {  # of its place, for its parts
            "width": width,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim or width // heads,
            "causal": causal,
            "length": length,
            "layer": layer,
            "grid": grid,
            "prefix": prefix,
        }
        self.kind = "cross" if cross else "self"
        self.attend = build_part(MECHANISMS, mechanism, "attention", **self.sizes, dropout=dropout, scale=scale)
        projection = projection or ("cross" if cross else getattr(self.attend, "default_projection", "linear"))
        self.project: Any = build_part(PROJECTIONS, projection, "projection", **self.sizes, bias=bias, norms=norms)
        self.join = build_part(JOINS, join, "join", **self.sizes, bias=bias if out_bias is None else out_bias)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return x with every token replaced by a mix of the context's values (of x's own, without a context)."""
        if context is not None:
            return self.cross_attend(x, self.project_kv(context, positions), mask, positions, layer_state)
        q, k, v = self.project(x, None if positions is None else positions.query_vectors)
        q, k = transform_by_position(q, positions, True), transform_by_position(k, positions, False)
        out: Tensor = self.join(self.attend(q, k, v, mask, positions and positions.bias, layer_state=layer_state))
        return out

    def project_kv(self, context: Float[Tensor, "B M C"], positions: PositionInfo | None = None) -> KeyValue:
        """Return the keys and values of a context, to be attended to many times."""
        if not hasattr(self.project, "project_kv"):
            raise Unsupported("this layer was built for self-attention and takes no context; build it with cross=True")
        k, v = self.project.project_kv(context, None if positions is None else positions.key_vectors)
        return k, v

    def cross_attend(
        self,
        x: Float[Tensor, "B N C"],
        keys: KeyValue,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Attend from x to keys and values that `project_kv` returned."""
        q = transform_by_position(
            self.project.project_q(x, None if positions is None else positions.query_vectors), positions, True
        )
        k = transform_by_position(keys[0], positions, False)
        out: Tensor = self.join(self.attend(q, k, keys[1], mask, positions and positions.bias, layer_state=layer_state))
        return out

    # -- decoding, one token after another -----------------------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        """Return an empty decoding state for `capacity` slots; the mechanism decides its kind, or refuses to step."""
        return self.attend.start(batch, capacity)

    def prefill(
        self,
        x: Float[Tensor, "B N C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B N C"], Any]:
        """Read the N tokens of a prompt into the state."""
        return self._advance(self.attend.prefill, x, state, beam_table, mask, positions, layer_state)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K C"], Any]:
        """Attend from the newest token of each of the K beams to its own past, and add it to the state."""
        return self._advance(self.attend.step, x, state, beam_table, mask, positions, layer_state)

    def _advance(
        self,
        advance: Any,
        x: Tensor,
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None,
        positions: PositionInfo | None,
        layer_state: LayerState | None,
    ) -> tuple[Tensor, Any]:
        q, k, v = self.project(x, None if positions is None else positions.query_vectors)
        if positions is not None and positions.qk_transform is not None:  # a key once, by its own position
            q, k = (positions.qk_transform.transform(x, positions.queries) for x in (q, k))
        bias = None if positions is None else positions.bias
        heads, state = advance(q, k, v, state, beam_table, mask, bias, layer_state=layer_state)
        return self.join(heads), state


def transform_by_position(x: Tensor, positions: PositionInfo | None, query: bool) -> Tensor:
    """Return queries or keys transformed by their positions, where positions do so."""
    if positions is None or positions.qk_transform is None:
        return x
    return positions.qk_transform.transform(x, positions.queries if query else positions.keys)
