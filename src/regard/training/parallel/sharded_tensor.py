"""Sharded tensors (`DTensor`), handled like plain ones.

    local_region(x)   the part of the whole that this process holds: a slice for each axis
    to_local(x)       that part, as a plain tensor that shares its memory; it may be empty
    to_full(x)        the gathered tensor; every process calls
    copy_values(x, y) x takes the values of y, whichever of the two is sharded

For a plain tensor the part is the whole.
"""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from regard.core.shapes import Tensor


def local_region(x: Tensor) -> tuple[slice, ...]:
    """Return the slices of the whole tensor that are here."""
    if not isinstance(x, DTensor):
        return tuple(slice(0, n) for n in x.shape)
    (chunk,) = x.__create_chunk_list__()  # as torch's distributed checkpoints do
    return tuple(slice(begin, begin + n) for begin, n in zip(chunk.offsets, chunk.sizes, strict=True))


def to_local(x: Tensor) -> Tensor:
    """Return the local shard, without gradient."""
    x = x.detach() if x.requires_grad else x  # skipped for moments, of which every update has hundreds
    return x.to_local() if isinstance(x, DTensor) else x


def to_full(x: Tensor) -> Tensor:
    """Return the gathered tensor; every process calls."""
    x = x.detach()
    return x.full_tensor() if isinstance(x, DTensor) else x


@torch.no_grad()
def copy_values(x: Tensor, y: Tensor) -> None:
    """Copy values; communicates only if y alone is sharded."""
    if not isinstance(x, DTensor):
        x.copy_(to_full(y))
    elif isinstance(y, DTensor):
        to_local(x).copy_(to_local(y.redistribute(x.device_mesh, x.placements)))
    else:
        to_local(x).copy_(y[local_region(x)])
