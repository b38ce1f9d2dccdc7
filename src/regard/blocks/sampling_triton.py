"""Farthest point sampling as one CUDA kernel, in Triton: a program for each cloud makes all steps.

    PyTorch     about eight kernels a step, each of which only starts and ends
    here        one kernel; the distances to the nearest chosen point stay in the cache

The same points as `blocks.points.farthest_point_sampling` gives, of several at the same distance the first.
"""

from __future__ import annotations

from typing import no_type_check

import torch

from regard.core.shapes import Bool, Float, Int, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None

MAX_TILE = 8192  # points that a program takes at a time


if triton is not None:  # no_type_check: Triton compiles from the source and must not be wrapped

    @triton.jit
    @no_type_check
    def _sample_kernel(points_at, nearest_at, chosen_at, N, S, TILE: tl.constexpr):
        b = tl.program_id(0).to(tl.int64)
        points_at += b * N * 3
        nearest_at += b * N
        chosen_at += b * S
        first = 0
        last = 0
        for s in range(S):
            x = tl.load(points_at + last * 3)
            y = tl.load(points_at + last * 3 + 1)
            z = tl.load(points_at + last * 3 + 2)
            top = -1.0
            index = first  # repeated when all points have been chosen
            for start in range(0, N, TILE):
                n = start + tl.arange(0, TILE)
                inside = n < N
                near = tl.load(nearest_at + n, mask=inside, other=-1.0)
                if s > 0:
                    dx = tl.load(points_at + n * 3, mask=inside, other=0.0) - x
                    dy = tl.load(points_at + n * 3 + 1, mask=inside, other=0.0) - y
                    dz = tl.load(points_at + n * 3 + 2, mask=inside, other=0.0) - z
                    distance = dx * dx + dy * dy + dz * dz
                    distance = tl.where(s > 1, tl.minimum(near, distance), distance)  # the first replaces the mean
                    near = tl.where((near < 0) | (n == last), -1.0, distance)
                    tl.store(nearest_at + n, near, mask=inside)
                high, place = tl.max(near, 0, return_indices=True, return_indices_tie_break_left=True)
                index = tl.where(high > top, start + place, index)
                top = tl.maximum(top, high)
            tl.store(chosen_at + s, index.to(tl.int64))
            first = tl.where(s == 0, index, first)
            last = index

    @torch.library.custom_op("regard::farthest_points", mutates_args=())
    @no_type_check
    def _sample(points: torch.Tensor, nearest: torch.Tensor, count: int) -> torch.Tensor:
        batch, n = nearest.shape
        chosen = torch.zeros(batch, count, dtype=torch.long, device=points.device)
        if batch and n and count:
            tile = min(MAX_TILE, triton.next_power_of_2(n))
            warps = max(4, min(16, tile // 256))
            _sample_kernel[(batch,)](points, nearest.clone(), chosen, N=n, S=count, TILE=tile, num_warps=warps)
        return chosen

    @_sample.register_fake
    def _(points: torch.Tensor, nearest: torch.Tensor, count: int) -> torch.Tensor:
        return points.new_empty(points.shape[0], count, dtype=torch.long)


def fused_farthest_points(
    points: Float[Tensor, "B N 3"], nearest: Float[Tensor, "B N"], real: Bool[Tensor, "B N"], count: int
) -> Int[Tensor, "B S"]:
    """Return `count` points; `nearest` is the squared distance from the mean, by which the first is chosen."""
    found: Tensor = _sample(points.contiguous(), nearest.masked_fill(~real, -1).contiguous(), count)
    return found
