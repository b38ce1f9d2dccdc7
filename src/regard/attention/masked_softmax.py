"""Softmax over what a mask allows.

w_m = exp(e_m) / Σ_m' exp(e_m')      over what the mask allows; zeros where it allows nothing
"""

from __future__ import annotations

import torch

from regard.core.shapes import Bool, Float, Tensor


def masked_softmax(
    scores: Float[Tensor, "*rows M"], allowed: Bool[Tensor, "*#rows #M"] | None
) -> Float[Tensor, "*rows M"]:
    """Return weights in float32 at least; a fully masked row gives zeros and no gradient."""
    scores = upcast(scores)
    if allowed is None:
        return scores.softmax(-1)
    # the smallest number, not -inf: a fully masked row stays finite, and the product makes it zero
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed


def wide_dtype(x: Float[Tensor, "*any"]) -> torch.dtype:
    """Return float64 for float64, else float32: the dtype of places and distances, of which bfloat16 counts to 256."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def upcast(x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Cast to float32, unless it is float64."""
    return x if x.dtype == torch.float64 else x.float()
