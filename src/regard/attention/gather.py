"""Read tokens of every head by index, and the true lengths behind a mask: for mechanisms that sort or select tokens."""

from __future__ import annotations

import torch

from regard.attention.mask import Mask
from regard.core.shapes import Float, Int, Tensor


def gather_tokens(x: Float[Tensor, "B H N D"], index: Int[Tensor, "B H *K"]) -> Float[Tensor, "B H *K D"]:
    """Return the vectors x[b, h, index[b, h, ...]]; its gradient adds up what was read more than once."""
    b, h, n, d = x.shape
    first = torch.arange(b * h, device=x.device).view(b, h, *(1,) * (index.dim() - 2)) * n
    # rows of one matrix: index_select is faster than `gather`, whose index has an entry for every coordinate
    return x.reshape(b * h * n, d).index_select(0, (index + first).flatten()).view(*index.shape, d)


def true_lengths(mask: Mask | None, batch: int, m: int, device: torch.device) -> Int[Tensor, " B"]:
    """Return how many of the m keys of each input are real."""
    padding = None if mask is None else mask.padding
    return torch.full((batch,), m, device=device) if padding is None else padding.lengths.to(device).long()
