"""Many heads: project, attend, join. The only place where heads are split and joined.

    q, k, v = x W_q, c W_k, c W_v        a head's share of the width each
    head_h  = attend(q_h, k_h, v_h)      any mechanism
    out     = [head_1 ... head_H] W_o

The context c is x itself in self-attention. A head's share may be given instead (`depth`, as in T5). With G < H groups,
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

from regard.attention.cache import KV, Family
from regard.attention.mask import Mask
from regard.attention.mechanisms import MECHANISMS
from regard.core.errors import RegardError
from regard.core.memo import Place
from regard.core.shapes import Float, Tensor
from regard.core.spec import make
from regard.core.where import Where

Keys = tuple[Tensor, Tensor]  # k B G M D and v B G M E


class MultiHead(nn.Module):
    """Tokens in, tokens out: the Mixer of every Transformer."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        depth: int | None = None,
        attention: Any = "softmax",
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        cross: bool = False,
        norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        groups = heads if groups is None else groups
        if (depth is None and width % heads) or heads % groups:
            raise RegardError(f"{heads} heads must divide the width {width}, and {groups} groups the heads")
        depth = width // heads if depth is None else depth
        self.kind = "cross" if cross else "self"
        self.project: Any = (
            CrossProjection(width, heads, groups, bias, depth)
            if cross
            else Projection(width, heads, groups, bias, norms, depth)
        )
        self.attend = make(MECHANISMS, attention, "attention", dropout=dropout, scale=scale)
        self.join = Join(width, bias, heads * depth)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: Where | None = None,
        memo: Place | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Mix the tokens of x with one another, or with the context's."""
        if context is not None:
            return self.read(x, self.keys(context), mask, positions, memo)
        q, k, v = self.project(x)
        return self._attend(_turn(q, positions, True), _turn(k, positions, False), v, mask, positions, memo)

    def keys(self, context: Float[Tensor, "B M C"]) -> Keys:
        """Keys and values of a context, to be read many times."""
        k, v = self.project.keys(context)
        return k, v

    def read(
        self,
        x: Float[Tensor, "B N C"],
        keys: Keys,
        mask: Mask | None = None,
        positions: Where | None = None,
        memo: Place | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Cross-attention to keys computed before."""
        q = self.project.queries(x)
        return self._attend(_turn(q, positions, True), _turn(keys[0], positions, False), keys[1], mask, positions, memo)

    def step(
        self,
        x: Float[Tensor, "B K C"],
        cache: KV | None,
        family: Family,
        mask: Mask | None = None,
        positions: Where | None = None,
        memo: Place | None = None,
    ) -> tuple[Float[Tensor, "B K C"], KV]:
        """Self-attention of the newest tokens, one of each beam, to all that the cache holds of their ancestors."""
        q, k, v = self.project(x)
        q = _turn(q, positions, True)
        if positions is not None and positions.turner is not None:
            k = positions.turner.turn(k, positions.queries)  # a key is turned once, by its own place, then kept
        cache = KV.empty(k, v, family.allow.shape[2]) if cache is None else cache
        k, v = cache.append(k, v, family)
        return self._attend(q, k, v, mask, positions, memo), cache

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, positions: Where | None, memo: Place | None
    ) -> Tensor:
        bias = None if positions is None else positions.bias
        out: Tensor = self.join(self.attend(q, k, v, mask, bias, memo=memo))
        return out


class Projection(nn.Module):
    """x -> q, k, v through one matrix; `norms` are those of q and k, over a head's share of the width."""

    def __init__(
        self,
        width: int,
        heads: int,
        groups: int,
        bias: bool,
        norms: tuple[nn.Module, nn.Module] | None = None,
        depth: int | None = None,
    ) -> None:
        super().__init__()
        self.groups, self.each, self.depth = groups, heads // groups, depth or width // heads
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.depth, bias=bias)
        self.q_norm = None if norms is None else norms[0]
        self.k_norm = None if norms is None else norms[1]

    def forward(self, x: Float[Tensor, "B N C"]) -> tuple[Tensor, Tensor, Tensor]:
        """All three at once."""
        every = self.qkv(x).unflatten(-1, (-1, self.each + 2, self.depth))  # B N G (each + 2) D; G of this process
        q, k, v = every.split((self.each, 1, 1), dim=3)
        q, k, v = q.flatten(2, 3), k.squeeze(3), v.squeeze(3)
        if self.q_norm is not None and self.k_norm is not None:  # under autocast a norm answers in float32
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


class CrossProjection(nn.Module):
    """x -> q; context -> k, v."""

    def __init__(self, width: int, heads: int, groups: int, bias: bool, depth: int | None = None) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, depth or width // heads
        self.q = nn.Linear(width, heads * self.depth, bias=bias)
        self.kv = nn.Linear(width, 2 * groups * self.depth, bias=bias)

    def queries(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B H N D"]:
        """What the tokens ask for."""
        q: Tensor = self.q(x).unflatten(-1, (-1, self.depth)).transpose(1, 2)
        return q

    def keys(self, context: Float[Tensor, "B M C"]) -> Keys:
        """What the context offers."""
        k, v = self.kv(context).unflatten(-1, (-1, 2, self.depth)).unbind(3)
        return k.transpose(1, 2), v.transpose(1, 2)


class Join(nn.Module):
    """Heads side by side, and one linear map over them."""

    def __init__(self, width: int, bias: bool, joined: int | None = None) -> None:
        super().__init__()
        self.out = nn.Linear(joined or width, width, bias=bias)

    def forward(self, heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N C"]:
        """B H N D -> B N C."""
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return joined


def _turn(x: Tensor, positions: Where | None, query: bool) -> Tensor:
    if positions is None or positions.turner is None:
        return x
    return positions.turner.turn(x, positions.queries if query else positions.keys)
