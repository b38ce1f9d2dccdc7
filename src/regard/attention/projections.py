"""Projections: tokens to the queries, keys and values of all heads. The table of contents is `PROJECTIONS`.

    linear       q, k, v = x W            one matrix, rows ordered by key head: queries of the group, its key, its value
    cross        q = x W_q;  k, v = c W_kv
    shared_qk    q = k = x W_qk;  v = x W_v
    value        v = x W_v;  q = k = 0    for mechanisms that read only values
    collaborative    q_h = x W_q diag(m_h);  k = x W_k, shared by all heads;  v = x W_v    (collaborative.py)

One `qkv` matrix is one product, and a contiguous slice of its rows is whole heads (tensor parallelism). `qk_positions`
are position vectors added to the inputs of q and k, but not of v, in every layer (DETR). Queries and keys may be
normalised head by head (QK-norm), so that scores stay bounded however long the training.

Carion et al. 2020 (DETR), arXiv:2005.12872; Dehghani et al. 2023 (QK-norm), arXiv:2302.05442; Kitaev et al. 2020
(shared_qk, of the Reformer), arXiv:2001.04451
"""

from __future__ import annotations

from torch import nn

from regard.core.errors import RegardError
from regard.core.shapes import Float, Tensor
from regard.core.spec import Registry

PROJECTIONS: Registry = {
    "linear": ("regard.attention.projections", "QKVProjection"),
    "cross": ("regard.attention.projections", "CrossProjection"),
    "shared_qk": ("regard.attention.projections", "SharedQKProjection"),
    "value": ("regard.attention.projections", "ValueProjection"),
    "collaborative": ("regard.attention.collaborative", "CollaborativeProjection"),
}

KeyValue = tuple[Tensor, Tensor]  # k B G M D and v B G M E


class QKVProjection(nn.Module):
    """Project x to q, k and v through one matrix; `norms` are those of q and k, over the width of a head."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.kv_heads, self.head_dim = kv_heads or heads, head_dim or width // heads
        self.heads_per_kv = heads // self.kv_heads
        self.qkv = nn.Linear(width, (heads + 2 * self.kv_heads) * self.head_dim, bias=bias)
        self.q_norm = None if norms is None else norms[0]
        self.k_norm = None if norms is None else norms[1]

    def forward(
        self, x: Float[Tensor, "B N C"], qk_positions: Float[Tensor, "#B N C"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q B H N D, k B G N D and v B G N D."""
        q, k, v = self._split(self.qkv(x))
        if qk_positions is not None:
            q, k, _ = self._split(self.qkv(x + qk_positions.to(x.dtype)))
        if self.q_norm is not None and self.k_norm is not None:  # under autocast a norm returns float32
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """B N (H + 2 G) D -> q B N H D, k and v B N G D; G is the number of key heads of this process."""
        q, k, v = qkv.unflatten(-1, (-1, self.heads_per_kv + 2, self.head_dim)).split((self.heads_per_kv, 1, 1), dim=3)
        return q.flatten(2, 3), k.squeeze(3), v.squeeze(3)


class CrossProjection(nn.Module):
    """Project x to q, and a context to k and v."""

    def __init__(
        self, width: int, heads: int, kv_heads: int | None = None, head_dim: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads or heads, head_dim or width // heads
        self.q = nn.Linear(width, heads * self.head_dim, bias=bias)
        self.kv = nn.Linear(width, 2 * self.kv_heads * self.head_dim, bias=bias)

    def project_q(
        self, x: Float[Tensor, "B N C"], positions: Float[Tensor, "#B N C"] | None = None
    ) -> Float[Tensor, "B H N D"]:
        """Return the queries of x; `positions` are added to x first."""
        x = x if positions is None else x + positions.to(x.dtype)
        q: Tensor = self.q(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return q

    def project_kv(self, context: Float[Tensor, "B M C"], positions: Float[Tensor, "#B M C"] | None = None) -> KeyValue:
        """Return the keys and values of the context; `positions` are added to the input of the keys."""
        k, v = self._split(self.kv(context))
        if positions is not None:
            k, _ = self._split(self.kv(context + positions.to(context.dtype)))
        return k.transpose(1, 2), v.transpose(1, 2)

    def _split(self, kv: Tensor) -> KeyValue:
        k, v = kv.unflatten(-1, (-1, 2, self.head_dim)).unbind(3)
        return k, v


class SharedQKProjection(nn.Module):
    """Project x to vectors that are queries and keys, and to v; one matrix, each head's query before its value.

    Of `norms` the first normalises the shared vectors.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if kv_heads not in (None, heads):
            raise RegardError(f"queries that are keys have as many heads: kv_heads must be {heads}, got {kv_heads}")
        self.head_dim = head_dim or width // heads
        self.qk_v = nn.Linear(width, 2 * heads * self.head_dim, bias=bias)
        self.qk_norm = None if norms is None else norms[0]

    def forward(
        self, x: Float[Tensor, "B N C"], qk_positions: Float[Tensor, "#B N C"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q B H N D, the same as k, and v B H N D."""
        qk, v = self._split(self.qk_v(x))
        if qk_positions is not None:
            qk, _ = self._split(self.qk_v(x + qk_positions.to(x.dtype)))
        if self.qk_norm is not None:  # under autocast a norm returns float32
            qk = self.qk_norm(qk).to(v.dtype)
        return qk, qk, v

    def _split(self, qk_v: Tensor) -> tuple[Tensor, Tensor]:
        qk, v = qk_v.unflatten(-1, (-1, 2, self.head_dim)).transpose(1, 2).unbind(3)
        return qk, v


class ValueProjection(nn.Module):
    """Project x to v only; q and k are zeros, which take no memory."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads or heads, head_dim or width // heads
        self.v = nn.Linear(width, self.kv_heads * self.head_dim, bias=bias)

    def forward(
        self, x: Float[Tensor, "B N C"], qk_positions: Float[Tensor, "#B N C"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q B H N D, k B G N D and v B G N D."""
        v: Tensor = self.v(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        zero = v.new_zeros(())
        return zero.expand(v.shape[0], self.heads, *v.shape[2:]), zero.expand(v.shape), v
