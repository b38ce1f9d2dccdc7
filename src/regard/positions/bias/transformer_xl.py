"""Relative positions of Transformer-XL: the projected sinusoid of a distance, times the query.

    softmax          s_nm = q_n · k_m
    Transformer-XL   s_nm = (q_n + u) · k_m + (q_n + v) · W_r p[n - m]          p: sinusoids, W_r without a bias

u and v are learned vectors of each head: how much a key, and how much a distance, counts whatever the query is. Any
distance has a sinusoid, so any length works. A layer projects all distances of a pass at once; O(N (N + M) D).

The products of a query with all distances are shifted, not gathered: in a row of them the keys of query n begin at
column N - 1 - n, so that the rows one after the other, less the first N - 1 numbers, are rows one number shorter whose
first M columns are the bias. It costs no copy.

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov: Transformer-XL. ACL 2019. arXiv:1901.02860
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from regard.core.shapes import Float, Rows, Tensor
from regard.positions.added.sinusoidal import SinusoidalPositions
from regard.positions.traits import PositionTraits


class TransformerXLPositions(nn.Module):
    """The learned part of one layer: W_r, u and v."""

    kind: ClassVar[str] = "bias"
    traits: ClassVar = PositionTraits("sequence", learned="projection", invariant=frozenset({"shift"}))
    no_weight_decay: ClassVar[tuple[str, ...]] = ("content_bias", "position_bias")

    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.distance = nn.Linear(width, heads * head_dim, bias=False)  # W_r
        self.content_bias = nn.Parameter(torch.zeros(heads, head_dim))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, head_dim))  # v
        nn.init.xavier_uniform_(self.distance.weight)

    def bias(
        self, q: Float[Tensor, "B H N D"], distances: Float[Tensor, "1 P C"], keys: int, scale: float
    ) -> tuple[Float[Tensor, "B H N D"], ShiftedBias]:
        """Return the queries q + u, and the bias on their scores; `distances` are of `distance_vectors`."""
        projected = self.distance(distances).unflatten(-1, (-1, self.head_dim)).permute(0, 2, 3, 1)  # 1 H D P
        products = ((q + self.position_bias[:, None].to(q.dtype)) * scale) @ projected.to(q.dtype)
        return q + self.content_bias[:, None].to(q.dtype), ShiftedBias(products, keys)


class ShiftedBias:
    """The bias of the products B H N P of N queries with the P = N + M distances M - 1 ... -N; the last is unused."""

    def __init__(self, products: Float[Tensor, "B H N P"], keys: int) -> None:
        self.products, self.keys = products, keys

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "B H N M"]:
        n, columns = self.products.shape[-2:]
        if n == 0:
            return self.products.new_zeros(*self.products.shape[:-1], self.keys)
        flat = self.products.flatten(-2)[..., n - 1 : n * columns - 1]
        return flat.unflatten(-1, (n, columns - 1))[..., : self.keys][:, :, rows]

    def score_mod(self) -> Callable[..., Tensor]:
        products, last = self.products, self.products.shape[-2] - 1

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            return score + products[b, h, n, m + last - n]

        return add


def distance_vectors(
    table: SinusoidalPositions, queries: int, keys: int, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "1 P C"]:
    """Return the sinusoids of the distances keys - 1, ..., -queries; the queries stand at the end of the keys."""
    return table.vectors(torch.arange(keys - 1, -queries - 1, -1, device=device)[None], dtype)
