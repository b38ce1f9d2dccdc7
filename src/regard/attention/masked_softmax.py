"""Scores become weights, in one place.

w_m = exp(e_m) / Σ_m' exp(e_m')      over what the mask allows; zeros where it allows nothing
"""

from __future__ import annotations

import torch

from regard.core.shapes import Bool, Float, Tensor


def masked_softmax(
    scores: Float[Tensor, "*rows M"], allowed: Bool[Tensor, "*#rows #M"] | None
) -> Float[Tensor, "*rows M"]:
    """Weights from scores, in float32 at least; a row that allows nothing gives zeros, and no gradient."""
    scores = upcast(scores)
    if allowed is None:
        return scores.softmax(-1)
    # the smallest number, not -inf: a row without a place stays finite, and the product makes it zero
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed


def upcast(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """What is summed and normalised is so in float32 at least."""
    return x if x.dtype == torch.float64 else x.float()
