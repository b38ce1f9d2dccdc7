"""A linear recurrence, computed for all times in parallel.

    h_t = a_t h_{t-1} + b_t,  h before the first = 0

Round r combines each time with the one 2^r before it: log2 T rounds of products and sums, O(T log T). There is no
division, so factors of zero are fine.

Hillis, Steele: Data Parallel Algorithms. 1986
"""

from __future__ import annotations

import torch.nn.functional as F

from regard.core.shapes import Float, Tensor


def scan(factors: Float[Tensor, "*rows T"], inputs: Float[Tensor, "*rows T"]) -> Float[Tensor, "*rows T"]:
    """Return every h_t along the last axis, from the factors a and the inputs b."""
    sums, by = inputs, 1
    while by < inputs.shape[-1]:  # after each round, h_t includes the inputs of the last 2 by times
        sums = sums + factors * shift_right(sums, by)
        factors = factors * shift_right(factors, by)
        by *= 2
    return sums


def shift_right(x: Float[Tensor, "*rows T"], by: int = 1) -> Float[Tensor, "*rows T"]:
    """Shift along the last axis by `by` places, filling with zeros."""
    return F.pad(x[..., : x.shape[-1] - by], (by, 0))
