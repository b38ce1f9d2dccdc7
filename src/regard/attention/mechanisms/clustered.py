"""Clustered attention: similar queries attend together, through the mean of their cluster.

    softmax      o_n = Σ_m w_nm v_m        w_n = softmax(q_n K^T / √D)                                  O(N M D)
    clustered    o_n = Σ_m w_cm v_m        w_c = softmax(q̄_c K^T / √D), q̄_c the mean of c = cluster(n)      O(N C D)

Queries that are close have close weights, so C centroids stand for N queries. Clusters come from K-means over hashes:
the signs of projections onto random directions, compared by Hamming distance, whose mean is a majority of bits.

Differs from the paper's code: a cluster that runs empty keeps its centroid instead of drawing a new one, and the random
directions are a buffer drawn from `seed` instead of new ones in every pass. K-means starts from the first tokens, as
there. Clusters are made of all queries of an input, so there is no causal form, and queries beyond its length are
padding, so it is for self-attention.

Vyas, Katharopoulos, Fleuret: Fast Transformers with Clustered Attention. NeurIPS 2020. arXiv:2007.04825
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from regard.attention.gather import gather_tokens, true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import Fraction, Seed


class ClusteredAttention(Mechanism):
    """Attention from the centroids of `clusters` clusters of queries.

    Args:
        head_dim: size of a head.
        clusters: number C of clusters.
        bits: number of bits of a hash.
        iterations: of K-means.
        dropout, scale: of the attention weights and of the scores (None: 1/√D).
        seed: of the directions of the hash, which are saved with the model.
    """

    traits = Traits(
        cost="N C D",
        paper="2007.04825",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        rowwise=False,
        square=True,
        positional=True,
        family="fewer queries or keys",
        limit="clusters=16",
        budget="clusters",
    )

    def __init__(
        self,
        head_dim: int,
        clusters: int = 100,
        bits: int = 63,
        iterations: int = 10,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.clusters, self.iterations, self.dropout, self.scale = clusters, iterations, dropout, scale
        planes = torch.randn(head_dim + 1, bits, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        self.planes: Tensor
        self.register_buffer("planes", planes.to(torch.get_default_dtype()))

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        cluster, weights = self.centroid_weights(q, k, true_lengths(mask, q.shape[0], q.shape[2], q.device))
        return gather_tokens(self.drop(weights).to(v.dtype) @ v, cluster)

    def centroid_weights(self, q: Tensor, k: Tensor, lengths: Int[Tensor, " B"]) -> tuple[Tensor, Tensor]:
        """Return the cluster of every query, B H N, and the weights of every cluster, B H C M."""
        n, d = q.shape[2:]
        real = (torch.arange(n, device=q.device) < lengths[:, None])[:, None]  # B 1 N
        cluster = self.assign(q, real)
        counted = F.pad(upcast(q), (0, 1), value=1.0) * real[..., None]  # the last coordinate counts
        total, size = _sum_by_cluster(counted, cluster, min(self.clusters, n)).split((d, 1), -1)
        centroids = total / size.clamp(min=1)
        scores = (centroids * (d**-0.5 if self.scale is None else self.scale)).to(q.dtype) @ k.mT
        return cluster, masked_softmax(scores, real[:, :, None])

    @torch.no_grad()
    def assign(self, q: Float[Tensor, "B H N D"], real: Bool[Tensor, "B 1 N"]) -> Int[Tensor, "B H N"]:
        """Return the cluster of every query, by K-means in Hamming space; of padding, any."""
        count = min(self.clusters, q.shape[2])
        ones = real[..., None].to(self.planes).expand(*q.shape[:3], 1)
        planes = self.planes.to(upcast(q).dtype)
        code = torch.where(upcast(q) @ planes[:-1] + planes[-1] > 0, 1.0, -1.0)
        used = real[:, :, None, :count]  # a centroid for each of the first tokens, of the real ones
        centroids = code[:, :, :count]
        cluster = (code @ centroids.mT).masked_fill(~used, -torch.inf).argmax(-1)
        for _ in range(self.iterations - 1):
            votes, size = (_sum_by_cluster(x, cluster, count) for x in (code * ones, ones))
            centroids = torch.where(size > 0, torch.where(votes > 0, 1.0, -1.0), centroids)  # the bit of the majority
            cluster = (code @ centroids.mT).masked_fill(~used, -torch.inf).argmax(-1)
        return cluster

    def drop(self, weights: Tensor) -> Tensor:
        """Apply dropout to the weights, in training."""
        return F.dropout(weights, self.dropout) if self.dropout and self.training else weights

    def extra_repr(self) -> str:
        return f"clusters={self.clusters}, bits={self.planes.shape[1]}, iterations={self.iterations}"


def _sum_by_cluster(
    x: Float[Tensor, "B H N D"], cluster: Int[Tensor, "B H N"], clusters: int
) -> Float[Tensor, "B H C D"]:
    """Return the sum of the vectors of each cluster."""
    return x.new_zeros(*x.shape[:2], clusters, x.shape[3]).scatter_add(2, cluster[..., None].expand_as(x), x)
