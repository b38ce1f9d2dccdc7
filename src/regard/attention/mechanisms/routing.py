"""Routing attention: tokens near the same centroid attend to one another.

    softmax    o_n = Σ_m w_nm v_m        w_nm ∝ exp(q_n·k_m / √D)        over all m                      O(N M D)
    routing    the same over the m that share a cluster with n, q and k layer-normalised                O(N (C + w) D)
               cluster c: the w queries of largest q_n·μ_c, and the w keys of largest k_m·μ_c

Centroids μ on the unit sphere follow the queries and keys by a moving average (online spherical K-means), so similar
vectors meet in a cluster. Every cluster takes exactly w tokens, which keeps the work balanced; with C = w = √N it is
O(N^1.5 D). A token in several clusters gets the mean of their outputs, one in none gets zeros.

Causal: queries and keys are the same vectors (the projection "shared_qk"), so that a query always meets at least its
own key. Which tokens a cluster takes depends on later tokens, so the mechanism does not decode step by step.

Differs from the paper: centroids change after an update (`after_update`) and not within a pass, towards the normalised
mean of their tokens; scores are divided by √D. As in the paper's code, a small commitment loss draws tokens to their
centroids (the layer's loss "commitment"). The paper gives half of the heads to local attention, which is
`per_head(parts=('window(window=256)', 'routing'))`; here all heads route.

Roy, Saffar, Vaswani, Grangier: Efficient Content-Based Sparse Attention with Routing Transformers. TACL 2021.
arXiv:2003.05997
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F

from regard.attention.gather import gather_tokens, true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.validation import Fraction, Seed


class RoutingAttention(Mechanism):
    """Attention within the `window` tokens of each of `clusters` clusters.

    Args:
        heads, head_dim: sizes of the place; every head has its own centroids.
        clusters: number C of clusters; None: √length.
        window: number w of tokens of a cluster; None: length / clusters.
        length: maximum length of the place; None: 1024.
        causal: whether queries and keys are to be the same vectors.
        decay: of the moving average of the centroids.
        commitment: weight of the commitment loss.
        dropout, scale: of the attention weights and of the scores (None: 1/√D).
        seed: of the first centroids, which are saved with the model.
    """

    traits = Traits(
        cost="N √N D",  # with C = w = √N, the default
        paper="2003.05997",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        causality="values",
        rowwise=False,
        headwise=False,
        normalised=False,
        square=True,
        family="sparse by content",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        clusters: int | None = None,
        window: int | None = None,
        length: int | None = None,
        causal: bool = False,
        decay: Fraction = 0.999,
        commitment: float = 1e-4,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        clusters = clusters or max(round(math.sqrt(length or 1024)), 1)
        self.window = window or math.ceil((length or 1024) / clusters)
        self.decay, self.commitment, self.dropout, self.scale = decay, commitment, dropout, scale
        self.default_projection = "shared_qk" if causal else "linear"
        generator = torch.Generator().manual_seed(seed)
        first = torch.randn(heads, clusters, head_dim, generator=generator, dtype=torch.float32)
        self.centroids: Tensor
        self.register_buffer("centroids", F.normalize(first, dim=-1).to(torch.get_default_dtype()))
        self.seen: Tensor  # sums of the tokens nearest to each centroid since the last update, and their number
        self.register_buffer("seen", self.centroids.new_zeros(heads, clusters, head_dim + 1), persistent=False)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (b, h, n, d), causal = q.shape, mask is not None and "causal" in mask.kinds
        lengths = true_lengths(mask, b, n, q.device)
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        q, k = (F.layer_norm(upcast(x), (d,)) for x in (q, k))
        queries = self.route(q, lengths)  # B H C w
        keys = queries if causal else self.route(k, lengths)
        scores = gather_tokens(q, queries) @ gather_tokens(k, keys).mT * (d**-0.5 if self.scale is None else self.scale)
        allowed = (keys < lengths[:, None, None, None])[..., None, :]
        allowed = allowed & (keys[..., None, :] <= queries[..., None]) if causal else allowed
        weights = masked_softmax(scores, allowed).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        if self.training and layer_state is not None:
            self._observe((q,) if causal else (q, k), lengths, layer_state)
        return _mean_at(weights @ gather_tokens(v, keys), queries, n)

    @torch.no_grad()
    def route(self, x: Float[Tensor, "B H N D"], lengths: Int[Tensor, " B"]) -> Int[Tensor, "B H C w"]:
        """Return the tokens of every cluster in order of position; padding only where there is nothing else."""
        near = torch.einsum("bhnd,hcd->bhcn", x, self.centroids.to(x.dtype))
        padding = torch.arange(x.shape[2], device=x.device) >= lengths[:, None, None, None]
        return near.masked_fill(padding, -torch.inf).topk(min(self.window, x.shape[2])).indices.sort(-1).values

    def _observe(self, vectors: Sequence[Tensor], lengths: Int[Tensor, " B"], layer_state: LayerState) -> None:
        """Add the commitment loss, and remember the tokens for the next update of the centroids."""
        x = torch.cat(list(vectors), 2)  # B H L D
        place = torch.arange(vectors[0].shape[2], device=x.device).repeat(len(vectors))
        real = (place < lengths[:, None])[:, None, :, None]
        centroids = self.centroids.to(x.dtype)
        nearest = torch.einsum("bhld,hcd->bhlc", x.detach(), centroids).argmax(-1, keepdim=True)
        with torch.no_grad():
            counted = F.pad(x, (0, 1), value=1.0) * real
            sums = counted.new_zeros(x.shape[0], *self.seen.shape)
            sums = sums.scatter_add(2, nearest.expand_as(counted), counted).sum(0)
            self.seen.add_(sums.to(self.seen.dtype))
        target = gather_tokens(centroids.expand(x.shape[0], -1, -1, -1), nearest.squeeze(-1))
        apart = ((F.normalize(x, dim=-1) - target).square() * real).sum() / (x.shape[1] * x.shape[3])
        layer_state.add_loss("commitment", self.commitment * apart / real.sum().clamp(min=1))

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
        return super().weights(q, k, mask, bias, queries=queries)  # without the layer state, to which it would write

    @torch.no_grad()
    def after_update(self) -> None:
        """Move the centroids towards the tokens that were nearest to them since the last update, of all processes."""
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.seen)
        total, count = self.seen.split((self.centroids.shape[-1], 1), -1)
        moved = F.normalize(self.centroids.lerp(F.normalize(total, dim=-1), 1 - self.decay), dim=-1)
        self.centroids.copy_(torch.where((count > 0) & moved.isfinite(), moved, self.centroids))
        self.seen.zero_()

    def extra_repr(self) -> str:
        return f"clusters={self.centroids.shape[1]}, window={self.window}, decay={self.decay}"


def _mean_at(x: Float[Tensor, "B H C w E"], index: Int[Tensor, "B H C w"], n: int) -> Float[Tensor, "B H N E"]:
    """Return at each of n places the mean of the vectors with its index, and zeros where there are none."""
    counted = F.pad(x.flatten(2, 3), (0, 1), value=1.0)  # the last coordinate counts
    at = index.flatten(2)[..., None].expand_as(counted)
    total = counted.new_zeros(*x.shape[:2], n, counted.shape[-1]).scatter_add(2, at, counted)
    return total[..., :-1] / total[..., -1:].clamp(min=1)
