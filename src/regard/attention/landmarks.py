"""Landmarks: the means of consecutive segments of a sequence, a few vectors that stand for all of them."""

from __future__ import annotations

import torch

from regard.attention.mask import Mask
from regard.core.shapes import Bool, Float, Tensor


def segment_means(
    landmarks: int, n: int, mask: Mask | None, like: Float[Tensor, "*any"]
) -> tuple[Float[Tensor, "#B 1 L N"], Bool[Tensor, "#B 1 L"]]:
    """Return the matrix that takes the n tokens of each input to its landmarks, and which of those exist.

    An input has as many landmarks as real tokens, at most `landmarks`; its segments differ by at most one token.
    """
    padding = None if mask is None else mask.padding
    lengths = torch.full((1,), n, device=like.device) if padding is None else padding.lengths.to(like.device)
    rows, place = torch.arange(min(landmarks, n), device=like.device), torch.arange(n, device=like.device)
    found = lengths.clamp(max=len(rows))[:, None]
    segment = place * found // lengths.clamp(min=1)[:, None]  # B N
    inside = (segment[:, None] == rows[:, None]) & (place < lengths[:, None])[:, None]
    return (inside / inside.sum(-1, keepdim=True).clamp(min=1)).to(like.dtype)[:, None], (rows < found)[:, None]
