"""Many heads: project, attend, join. The only place where heads are split and joined.

    q, k, v = x W_q, c W_k, c W_v        a head's share of the width each
    head_h  = attend(q_h, k_h, v_h)      any mechanism
    out     = [head_1 ... head_H] W_o

The context c is x itself in self-attention. A head's share may be given instead (`head_dim`, as in T5). With kv_heads = G < H,
several query heads read the same keys (G = 1: multi-query). Self-attention stores one `qkv` matrix, its rows ordered by
group (the group's queries, its key, its value): one product, and a contiguous slice of rows is whole heads. There,
queries and keys may be normed head by head before positions turn them (QK-norm), so that scores stay within bounds
however long the training.

Vaswani et al. 2017, arXiv:1706.03762; Shazeer 2019 (multi-query), arXiv:1911.02150; Ainslie et al. 2023 (grouped),
arXiv:2305.13245; Dehghani et al. 2023 (QK-norm), arXiv:2302.05442
"""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.attention.kv_cache import BeamTable, KVCache
from regard.attention.mask import Mask
from regard.attention.mechanisms import MECHANISMS
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part

KeyValue = tuple[Tensor, Tensor]  # k B G M D and v B G M E


class MultiHeadAttention(nn.Module):
    """Tokens in, tokens out: the Mixer of every Transformer."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        attention: Any = "softmax",
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        cross: bool = False,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if (head_dim is None and width % heads) or heads % kv_heads:
            raise RegardError(f"{heads} heads must divide the width {width}, and {kv_heads} groups the heads")
        head_dim = width // heads if head_dim is None else head_dim
        self.kind = "cross" if cross else "self"
        self.project: Any = (
            CrossQKVProjection(width, heads, kv_heads, bias, head_dim)
            if cross
            else QKVProjection(width, heads, kv_heads, bias, norms, head_dim)
        )
        self.attend = build_part(MECHANISMS, attention, "attention", dropout=dropout, scale=scale)
        self.join = OutputProjection(width, bias, heads * head_dim)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Mix the tokens of x with one another, or with the context's."""
        if context is not None:
            return self.cross_attend(x, self.project_kv(context), mask, positions, layer_state)
        q, k, v = self.project(x)
        return self._attend(
            _transform(q, positions, True), _transform(k, positions, False), v, mask, positions, layer_state
        )

    def project_kv(self, context: Float[Tensor, "B M C"]) -> KeyValue:
        """Keys and values of a context, to be read many times."""
        k, v = self.project.project_kv(context)
        return k, v

    def cross_attend(
        self,
        x: Float[Tensor, "B N C"],
        keys: KeyValue,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Cross-attention to keys computed before."""
        q = self.project.project_q(x)
        return self._attend(
            _transform(q, positions, True), _transform(keys[0], positions, False), keys[1], mask, positions, layer_state
        )

    def step(
        self,
        x: Float[Tensor, "B K C"],
        cache: KVCache | None,
        beam_table: BeamTable,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K C"], KVCache]:
        """Self-attention of the newest tokens, one of each beam, to all that the cache holds of their ancestors."""
        q, k, v = self.project(x)
        q = _transform(q, positions, True)
        if positions is not None and positions.qk_transform is not None:
            k = positions.qk_transform.transform(
                k, positions.queries
            )  # a key is turned once, by its own place, then kept
        cache = KVCache.empty(k, v, beam_table.allow.shape[2]) if cache is None else cache
        k, v = cache.append(k, v, beam_table)
        return self._attend(q, k, v, mask, positions, layer_state), cache

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        positions: PositionInfo | None,
        layer_state: LayerState | None,
    ) -> Tensor:
        bias = None if positions is None else positions.bias
        out: Tensor = self.join(self.attend(q, k, v, mask, bias, layer_state=layer_state))
        return out


class QKVProjection(nn.Module):
    """x -> q, k, v through one matrix; `norms` are those of q and k, over a head's share of the width."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int,
        bias: bool,
        norms: tuple[nn.Module, nn.Module] | None = None,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.kv_heads, self.heads_per_kv, self.head_dim = kv_heads, heads // kv_heads, head_dim or width // heads
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.head_dim, bias=bias)
        self.q_norm = None if norms is None else norms[0]
        self.k_norm = None if norms is None else norms[1]

    def forward(self, x: Float[Tensor, "B N C"]) -> tuple[Tensor, Tensor, Tensor]:
        """All three at once."""
        every = self.qkv(x).unflatten(
            -1, (-1, self.heads_per_kv + 2, self.head_dim)
        )  # B N G (each + 2) D; G of this process
        q, k, v = every.split((self.heads_per_kv, 1, 1), dim=3)
        q, k, v = q.flatten(2, 3), k.squeeze(3), v.squeeze(3)
        if self.q_norm is not None and self.k_norm is not None:  # under autocast a norm answers in float32
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


class CrossQKVProjection(nn.Module):
    """x -> q; context -> k, v."""

    def __init__(self, width: int, heads: int, kv_heads: int, bias: bool, head_dim: int | None = None) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim or width // heads
        self.q = nn.Linear(width, heads * self.head_dim, bias=bias)
        self.kv = nn.Linear(width, 2 * kv_heads * self.head_dim, bias=bias)

    def project_q(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B H N D"]:
        """What the tokens ask for."""
        q: Tensor = self.q(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return q

    def project_kv(self, context: Float[Tensor, "B M C"]) -> KeyValue:
        """What the context offers."""
        k, v = self.kv(context).unflatten(-1, (-1, 2, self.head_dim)).unbind(3)
        return k.transpose(1, 2), v.transpose(1, 2)


class OutputProjection(nn.Module):
    """Heads side by side, and one linear map over them."""

    def __init__(self, width: int, bias: bool, joined: int | None = None) -> None:
        super().__init__()
        self.out = nn.Linear(joined or width, width, bias=bias)

    def forward(self, heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N C"]:
        """B H N D -> B N C."""
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return joined


def _transform(x: Tensor, positions: PositionInfo | None, query: bool) -> Tensor:
    if positions is None or positions.qk_transform is None:
        return x
    return positions.qk_transform.transform(x, positions.queries if query else positions.keys)
