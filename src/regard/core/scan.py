"""A linear recurrence for all times at once.

    h_t = a_t h_{t-1} + b_t,  h before the first = 0

One round joins every time with the one before it, the next with what that had joined, and so on: log2 T rounds of
products and sums, O(T log T), and nothing is ever divided, so a factor of zero does no harm.

Hillis, Steele: Data Parallel Algorithms. 1986
"""

from __future__ import annotations

import torch.nn.functional as F

from regard.core.shapes import Float, Tensor


def scan(factors: Float[Tensor, "*rows T"], inputs: Float[Tensor, "*rows T"]) -> Float[Tensor, "*rows T"]:
    """Every h_t along the last axis, from the factors a and what is given, b."""
    sums, by = inputs, 1
    while by < inputs.shape[-1]:  # after each round: all that was given at most 2 by - 1 times before
        sums = sums + factors * shift_right(sums, by)
        factors = factors * shift_right(factors, by)
        by *= 2
    return sums


def shift_right(x: Float[Tensor, "*rows T"], by: int = 1) -> Float[Tensor, "*rows T"]:
    """Everything `by` times later, zeros before it."""
    return F.pad(x[..., : x.shape[-1] - by], (by, 0))
