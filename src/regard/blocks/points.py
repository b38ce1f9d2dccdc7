"""Neighbours, samples and interpolation of point clouds B N 3, padded beyond their `lengths`.

    knn                       the k nearest points of every query                                  O(N M)
    farthest_point_sampling   points, each the farthest from those before it                       O(N S)
    interpolate               Σ_j w_j x_j over the 3 nearest points j,  w_j ∝ 1 / (d_j + 1e-8)     O(N M)
    PointBatchNorm            batch norm of the features of all real points of a batch              O(N C)

Distances are computed from differences, not from products of the coordinates, which cancel far from the origin; queries
are taken in chunks, so that memory stays linear in the points. On a GPU a Triton kernel samples (sampling_triton).
Nothing depends on the order of the points, except which of two points at the same distance is taken.

Qi, Yi, Su, Guibas: PointNet++: Deep Hierarchical Feature Learning on Point Sets in a Metric Space. NeurIPS 2017.
arXiv:1706.02413
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import nn

from regard.attention.gather import gather_tokens
from regard.core.shapes import Bool, Float, Int, Shaped, Tensor

CHUNK, CACHED_CHUNK = 2**24, 2**18  # distances held at a time: on a GPU, and where they should stay in the cache
HAS_TRITON = find_spec("triton") is not None  # PyTorch for CPUs comes without it


def real_points(points: Shaped[Tensor, "B N _"], lengths: Int[Tensor, " B"] | None) -> Bool[Tensor, "B N"]:
    """Return which points are not padding."""
    n = torch.arange(points.shape[1], device=points.device)
    if lengths is None:
        return torch.ones(points.shape[:2], dtype=torch.bool, device=points.device)
    return n[None] < lengths.to(points.device)[:, None]


def gather_points(x: Float[Tensor, "B N C"], index: Int[Tensor, "B *K"]) -> Float[Tensor, "B *K C"]:
    """Return the rows x[b, index[b, ...]]."""
    return gather_tokens(x[:, None], index[:, None])[:, 0]


@torch.no_grad()
def knn(
    queries: Float[Tensor, "B N 3"], points: Float[Tensor, "B M 3"], k: int, lengths: Int[Tensor, " B"] | None = None
) -> tuple[Int[Tensor, "B N K"], Bool[Tensor, "B N K"]]:
    """Return the nearest points of every query, nearest first, and which of them exist: K = min(k, M)."""
    k, padding = min(k, points.shape[1]), None if lengths is None else ~real_points(points, lengths)[:, None]
    exact = torch.promote_types(points.dtype, torch.float32)
    points, queries = points.to(exact), queries.to(exact)
    indices = []
    at_once = CHUNK if points.is_cuda else CACHED_CHUNK
    rows = max(1, at_once // max(1, points.shape[0] * points.shape[1])) if not torch.compiler.is_exporting() else None
    for chunk in (queries,) if rows is None else queries.split(rows, 1):  # a loop would fix the shapes of an export
        if rows is None:  # ONNX has no cdist
            distances = torch.linalg.vector_norm(chunk[:, :, None] - points[:, None], dim=-1)
        else:
            distances = torch.cdist(chunk, points, compute_mode="donot_use_mm_for_euclid_dist")
        if padding is not None:
            distances = distances.masked_fill(padding, float("inf"))
        indices.append(distances.topk(k, largest=False).indices)
    index = torch.cat(indices, 1)
    if padding is None:
        return index, torch.ones_like(index, dtype=torch.bool)
    exists = ~padding.expand(-1, index.shape[1], -1).gather(2, index)
    return index.where(exists, 0), exists


@torch.no_grad()
def farthest_point_sampling(
    points: Float[Tensor, "B N 3"], count: int, lengths: Int[Tensor, " B"] | None = None
) -> Int[Tensor, "B S"]:
    """Return `count` different points, the first the farthest from the mean; a cloud with fewer repeats its first.

    Each next one maximises the distance to the nearest of those before it.
    """
    real = real_points(points, lengths)
    points = points.to(torch.promote_types(points.dtype, torch.float32)).masked_fill(~real[..., None], 0)
    mean = points.sum(1, keepdim=True) / real.sum(1)[:, None, None].clamp(min=1)
    nearest = (points - mean).square().sum(-1).masked_fill(~real, -1)
    if points.is_cuda and HAS_TRITON and points.dtype == torch.float32 and not torch.compiler.is_exporting():
        from regard.blocks.sampling_triton import fused_farthest_points

        return fused_farthest_points(points, nearest, real, count)
    chosen, rows = list[Tensor](), torch.arange(points.shape[0], device=points.device)
    for n in range(count):
        index = nearest.argmax(1)
        index = index.where(nearest[rows, index] >= 0, chosen[0]) if n else index
        chosen.append(index)
        distance = (points - points[rows, index][:, None]).square().sum(-1)
        nearest = torch.minimum(nearest, distance) if n else distance.where(nearest >= 0, nearest)
        nearest = nearest.scatter(1, index[:, None], -1)  # chosen: below every distance
    return torch.stack(chosen, 1) if chosen else rows.new_zeros(points.shape[0], 0)


def interpolate(
    x: Float[Tensor, "B M C"],
    points: Float[Tensor, "B M 3"],
    queries: Float[Tensor, "B N 3"],
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B N C"]:
    """Return features of the queries, from those of the (up to) 3 nearest points; zeros where there is no point."""
    index, exists = knn(queries, points, 3, lengths)
    distances = torch.linalg.vector_norm(queries[:, :, None] - gather_points(points, index), dim=-1)
    weights = (1 / (distances + 1e-8)) * exists
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    return (weights[..., None].to(x.dtype) * gather_points(x, index)).sum(2)


def mean_of_points(x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B C"]:
    """Return the mean of the real points' features; zeros where there is none."""
    real = real_points(x, lengths)[..., None]
    return (x * real).sum(1) / real.sum(1).clamp(min=1).to(x.dtype)


class PointBatchNorm(nn.BatchNorm1d):
    """Batch norm of features B N C, whose statistics are those of the points that are no padding."""

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N C"]:
        if not self.training or x.shape[:2].numel() < 2:  # one point has no variance
            mean, var = (y[None, None] for y in (self.running_mean, self.running_var))  # type: ignore[index]
            out: Tensor = (x - mean) * (self.weight * (var + self.eps).rsqrt()) + self.bias
            return out.to(x.dtype)
        if real is None:
            return super().forward(x.flatten(0, 1)).view(x.shape)
        return torch.zeros_like(x).masked_scatter(real[..., None], super().forward(x[real]).to(x.dtype))


class PointLinear(nn.Module):
    """relu(norm(linear(x))) of the features of every point."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, out, bias=False), PointBatchNorm(out)

    def forward(self, x: Float[Tensor, "B N C"], real: Bool[Tensor, "B N"] | None = None) -> Float[Tensor, "B N _"]:
        return torch.relu(self.norm(self.linear(x), real))


def padding_mask(points: Shaped[Tensor, "B N _"], lengths: Int[Tensor, " B"] | None) -> Bool[Tensor, "B N"] | None:
    """Return which points are real; None where all are."""
    return None if lengths is None else real_points(points, lengths)
