"""Gathered attention: every query has a list of the keys it sees, and only those are read.

    softmax     o_n = Σ_m softmax_m(q_n·k_m / √D) v_m              m: all M keys                   O(N M D)
    gathered    o_n = Σ_j softmax_j(q_n·(k_m + a_t) / √D) v_m      m = index_nj, t = type_nj       O(N J D)

The lists are a mask, `Neighbours`: groups of consecutive queries, each with lists of one length J, so that a few
queries with long lists do not make those of all others long. A key that is listed twice counts twice. With `edge_types`
a learned vector a_t is added to the key, as relative positions are (Shaw et al. 2018, arXiv:1803.02155). It is the
attention of the Star-Transformer and of the BP-Transformer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.validation import Fraction


@dataclass(frozen=True, eq=False)
class NeighbourGroup:
    """The lists of some consecutive queries: which keys, which entries count, and the type of each edge."""

    index: Int[Tensor, "#B N J"]
    allowed: Bool[Tensor, "#B N J"]
    types: Int[Tensor, "N J"] | None = None


class Neighbours(Mask):
    """Each query sees the keys that are listed for it."""

    batched = True

    def __init__(self, groups: Sequence[NeighbourGroup]) -> None:
        self.groups = groups

    def dense(
        self, batch: int, n: int, m: int, device: torch.device | str = "cpu", rows: Rows = slice(None)
    ) -> Bool[Tensor, "#B 1 rows M"]:
        parts = []
        for group in self.groups:
            shape = batch, *group.index.shape[1:]
            index, allowed = group.index.expand(shape), group.allowed.expand(shape)
            seen = torch.zeros(batch, shape[1], m, dtype=torch.long, device=index.device)
            parts.append(seen.scatter_add(2, index, allowed.long()) > 0)
        return torch.cat(parts, 1)[:, None, rows]

    def __repr__(self) -> str:
        return f"Neighbours({[tuple(group.index.shape[1:]) for group in self.groups]})"


class GatheredAttention(Mechanism):
    """Softmax attention of every query over its own list of keys; the mask must be `Neighbours`."""

    traits = Traits(cost="N J D", paper="1902.09113", bias=False, causality="none", family="sparse by position")

    def __init__(self, head_dim: int, edge_types: int = 0, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.edge_keys = nn.Parameter(torch.randn(edge_types, head_dim) * head_dim**-0.5) if edge_types else None

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        out, begin = [], 0
        for group in _groups(mask):
            queries = q[:, :, begin : (begin := begin + group.index.shape[1])]
            weights = self._weights(queries, k, group).to(v.dtype)
            weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
            out.append((weights[..., None, :] @ _gather(v, group.index)).squeeze(-2))
        return torch.cat(out, 2)

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
        out, begin = [], 0
        for group in _groups(mask):
            weights = self._weights(q[:, :, begin : (begin := begin + group.index.shape[1])], k, group)
            dense = weights.new_zeros(*weights.shape[:3], k.shape[2])
            out.append(dense.scatter_add(3, group.index[:, None].expand(weights.shape), weights))
        return torch.cat(out, 2)[:, :, queries].to(q.dtype)

    def _weights(self, q: Tensor, k: Tensor, group: NeighbourGroup) -> Float[Tensor, "B H N J"]:
        scores = upcast((_gather(k, group.index) @ q[..., None]).squeeze(-1))
        if self.edge_keys is not None:
            assert group.types is not None, "the mask has no edge types"
            scores = scores + upcast(q @ self.edge_keys.to(q.dtype).T).gather(-1, group.types.expand_as(scores))
        return masked_softmax(scores * q.shape[-1] ** -0.5, group.allowed[:, None])


def _gather(x: Float[Tensor, "B H M D"], index: Int[Tensor, "#B N J"]) -> Float[Tensor, "B H N J D"]:
    (b, h, _, d), (n, j) = x.shape, index.shape[1:]
    rows = index.flatten(1)[:, None, :, None].expand(b, h, n * j, d)
    return x.gather(2, rows).unflatten(2, (n, j))


def _groups(mask: Mask | None) -> Sequence[NeighbourGroup]:
    if not isinstance(mask, Neighbours):
        raise Unsupported(f"GatheredAttention needs the mask Neighbours, which lists the keys of a query, got {mask!r}")
    return mask.groups
