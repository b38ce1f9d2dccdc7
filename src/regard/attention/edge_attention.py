"""Attention along the edges of a graph: only pairs of nodes that an edge joins are computed.

    softmax     o_n = Σ_m softmax_m(q_n·k_m / √D + b_nm) v_m        m: all M keys, others masked              O(N M D)
    edges       the same sum                                        m: the keys of the E pairs (n, m)         O(E D)

A graph with many nodes has few edges for each of them. The pairs are listed; scores, softmax and sum are made pair by
pair and added up by query. `softmax` attends so by itself where an `EdgeMask` says who sees whom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from regard.attention.mask import DenseMask
from regard.core.positions import Bias
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.tensor_memo import TensorMemo

SHARE = 16  # pairs are listed where they are at most one in so many of all


class EdgeMask(DenseMask):
    """A matrix of which few entries are True, with the list of these."""

    _pairs: tuple[Tensor, Tensor, Tensor] | None = None

    @staticmethod
    def is_sparse(allowed: Bool[Tensor, "B N M"]) -> bool:
        """Return whether a list of pairs is faster than the matrix: few pairs on a CPU, in code not compiled."""
        if allowed.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        return int(allowed.count_nonzero()) * SHARE <= allowed.numel()

    @property
    def pairs(self) -> tuple[Int[Tensor, " E"], Int[Tensor, " E"], Int[Tensor, " E"]]:
        """Input, query and key of every pair, listed once for all layers."""
        if self._pairs is None:
            b, n, m = self.allowed.nonzero().unbind(1)
            self._pairs = b, n, m
        return self._pairs


def neighbor_mask(edges: Int[Tensor, "B N N"], lengths: Int[Tensor, " B"] | None) -> DenseMask:
    """Return the mask by which every real node sees its neighbours and itself; `edges` n m is 0 without an edge."""
    if lengths is None or (_unpadded_mask.takes(edges) and int(lengths.min()) == edges.shape[1]):
        return _unpadded_mask(edges)
    n = torch.arange(edges.shape[1], device=edges.device)
    return _edge_mask(_neighbors(edges) & (n < lengths.to(edges.device)[:, None, None]))


def _neighbors(edges: Int[Tensor, "B N N"]) -> Bool[Tensor, "B N N"]:
    allowed = edges > 0
    allowed.diagonal(dim1=1, dim2=2).fill_(True)
    return allowed


def _edge_mask(allowed: Bool[Tensor, "B N N"]) -> DenseMask:
    return EdgeMask(allowed) if EdgeMask.is_sparse(allowed) else DenseMask(allowed)


_unpadded_mask = TensorMemo(lambda edges: _edge_mask(_neighbors(edges)))


@dataclass(frozen=True, eq=False)
class EdgeBias:
    """A bias for each head by the type of the edge from n to m: 0 no edge, then the types, last a node to itself."""

    table: Float[Tensor, "K H"]
    edges: Int[Tensor, "B N N"]  # 0 if there is no edge, else 1 + its type; larger types count as K - 2

    def kinds(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Return the row of the table of each pair; index tensors that broadcast."""
        last = len(self.table) - 1
        return torch.where(n == m, last, self.edges[b, n, m].clamp(max=last - 1))

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "B H N N"]:
        n, last = torch.arange(self.edges.shape[1], device=self.edges.device), len(self.table) - 1
        kinds = self.edges[:, rows].clamp(max=last - 1).masked_fill(n[rows, None] == n, last)
        return self.table[kinds].movedim(3, 1).contiguous()

    def score_mod(self) -> Callable[..., Tensor]:
        return lambda score, b, h, n, m: score + self.table[self.kinds(b, n, m), h]


def edge_attention(
    q: Float[Tensor, "B H N D"],
    k: Float[Tensor, "B H M D"],
    v: Float[Tensor, "B H M E"],
    mask: EdgeMask,
    bias: Bias | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H N E"]:
    """Return softmax attention over the pairs of a mask; a query without a pair gives zeros."""
    (batch, heads, count, _), (b, n, m) = q.shape, mask.pairs
    queries, keys = (x.transpose(1, 2).flatten(0, 1) for x in (q, k))
    scores = queries.index_select(0, b * count + n) * keys.index_select(0, b * k.shape[2] + m)
    scores = scores.sum(-1) * scale  # P H
    if isinstance(bias, EdgeBias):
        scores = scores + bias.table[bias.kinds(b, n, m)].to(scores.dtype)
    elif bias is not None:
        scores = scores + bias.dense().to(scores.dtype).expand(batch, heads, -1, -1)[b, :, n, m]
    return mix_pairs(scores, v, mask, count, dropout)


def mix_pairs(
    scores: Float[Tensor, "P H"], v: Float[Tensor, "B H M E"], mask: EdgeMask, queries: int, dropout: float = 0.0
) -> Float[Tensor, "B H N E"]:
    """Return the values of each query's pairs, weighted by the softmax of their scores."""
    (batch, heads), (b, n, m) = v.shape[:2], mask.pairs
    row = b * queries + n  # of the query, among those of all inputs
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    of_head = row[:, None].expand(-1, heads)
    top = scores.new_full((batch * queries, heads), float("-inf")).scatter_reduce(0, of_head, scores.detach(), "amax")
    weights = (scores - top.index_select(0, row)).exp()
    total = weights.new_zeros(batch * queries, heads).index_add(0, row, weights)
    weights = (weights / total.index_select(0, row)).to(v.dtype)
    weights = F.dropout(weights, dropout) if dropout else weights
    mixed = weights[..., None] * v.transpose(1, 2).flatten(0, 1).index_select(0, b * v.shape[2] + m)
    out = v.new_zeros(batch * queries, heads, v.shape[3]).index_add(0, row, mixed)
    return out.unflatten(0, (batch, queries)).transpose(1, 2)
