"""Relative positions: a learned number for each head and each bucket of distances, added to the scores.

    softmax     s_nm = q_n · k_m
    relative    s_nm = q_n · k_m + r_h[bucket(m - n)]

Near distances have a bucket each; farther ones share buckets that widen by a constant factor up to `max_distance`, and
all beyond that share one. With U buckets a side (half of them if keys are on both sides), and d the distance back:

    bucket(d) = d                                                              d < U/2
                U/2 + ⌊ U/2 · log(d / (U/2)) / log(max_distance / (U/2)) ⌋     else, at most U - 1

All layers share one table, so it is read once for each pass.

Raffel et al.: Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (T5). JMLR 2020.
arXiv:1910.10683
"""

from __future__ import annotations

from math import log
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.positions.bias.distance import DistanceBias
from regard.positions.traits import PositionTraits


class RelativePositions(nn.Module):
    """T5's bias: a table of `buckets` rows; if `causal`, all are for distances back, else half for each direction."""

    kind: ClassVar[str] = "bias"
    traits: ClassVar = PositionTraits(
        "sequence", learned="table", other_sizes="clamped", invariant=frozenset({"shift"})
    )

    def __init__(self, heads: int, buckets: int = 32, max_distance: int = 128, causal: bool = False) -> None:
        super().__init__()
        exact = (buckets if causal else buckets // 2) // 2  # distances with a bucket of their own
        if exact < 1 or (buckets % 2 and not causal) or max_distance <= exact:
            raise BadInput(
                f"relative positions cannot spread distances up to {max_distance} over {buckets} buckets; "
                f"use an even number of buckets, at least 4, and a max_distance above half of them"
            )
        self.buckets, self.max_distance, self.causal = buckets, max_distance, causal
        self.table = nn.Embedding(buckets, heads)
        nn.init.normal_(self.table.weight, std=0.02)

    def bias(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"]) -> RelativeBias:
        """Return the bias between these indices."""
        return RelativeBias(queries, keys, self)

    def bucket(self, distance: Int[Tensor, "*S"]) -> Int[Tensor, "*S"]:
        """Return the bucket of a distance, key minus query: 0 to `buckets` - 1."""
        side = self.buckets if self.causal else self.buckets // 2
        exact = side // 2
        back = (-distance).clamp(min=0) if self.causal else distance.abs()
        # Where back < exact the logarithm is not used; the clamp keeps it finite.
        far = torch.log(back.clamp(min=exact).float() / exact) / log(self.max_distance / exact) * (side - exact)
        bucket = torch.where(back < exact, back, (exact + far.long()).clamp(max=side - 1))
        return bucket if self.causal else bucket + (distance > 0) * side

    def extra_repr(self) -> str:
        return f"buckets={self.buckets}, max_distance={self.max_distance}, causal={self.causal}"


class RelativeBias(DistanceBias):
    """Look every distance up in the table, with gradients to it."""

    def __init__(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"], positions: RelativePositions) -> None:
        super().__init__(queries, keys)
        # All beyond max_distance is one bucket, so 2 max_distance + 1 values a head are all there are: logarithms are
        # taken of these distances, not of N × M.
        self.max_distance = positions.max_distance
        span = torch.arange(-self.max_distance, self.max_distance + 1, device=queries.device)
        self.by_distance = F.embedding(positions.bucket(span), positions.table.weight).T.contiguous()  # H S

    def matrix(self, distance: Int[Tensor, "#B N M"]) -> Float[Tensor, "#B H N M"]:
        values = self.by_distance.index_select(1, self.column(distance).flatten())
        return values.unflatten(1, distance.shape).transpose(0, 1)

    def value_at(self, distance: Tensor, head: Tensor) -> Tensor:
        return self.by_distance[head, self.column(distance)]

    def column(self, distance: Tensor) -> Tensor:
        """Return the column of a distance in `by_distance`."""
        return distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
