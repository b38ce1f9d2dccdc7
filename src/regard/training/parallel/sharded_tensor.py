"""Tensors of which each process holds a slice (`DTensor`), handled like the ones that are whole.

    region(x)      which part of the whole this process holds: a slice for each axis
    local(x)       that part, as a plain tensor that shares its memory; it may be empty
    whole(x)       all of it, gathered; every process asks
    fill(x, y)     x takes the values of y, whichever of the two is sliced

For a plain tensor the part is the whole.
"""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor

from regard.core.shapes import Tensor


def local_region(x: Tensor) -> tuple[slice, ...]:
    """Which part of the whole is here."""
    if not isinstance(x, DTensor):
        return tuple(slice(0, n) for n in x.shape)
    (chunk,) = x.__create_chunk_list__()  # torch's own word for it, which its checkpoints go by too
    return tuple(slice(begin, begin + n) for begin, n in zip(chunk.offsets, chunk.sizes, strict=True))


def to_local(x: Tensor) -> Tensor:
    """The part that is here, without a gradient."""
    x = x.detach() if x.requires_grad else x  # moments have none, and there are hundreds of them in every update
    return x.to_local() if isinstance(x, DTensor) else x


def to_full(x: Tensor) -> Tensor:
    """All of it; every process asks."""
    x = x.detach()
    return x.full_tensor() if isinstance(x, DTensor) else x


@torch.no_grad()
def copy_values(x: Tensor, y: Tensor) -> None:
    """Copy values; nothing is communicated unless y alone is sliced."""
    if not isinstance(x, DTensor):
        x.copy_(to_full(y))
    elif isinstance(y, DTensor):
        to_local(x).copy_(to_local(y.redistribute(x.device_mesh, x.placements)))
    else:
        to_local(x).copy_(y[local_region(x)])
