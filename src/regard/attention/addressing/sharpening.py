"""Sharpening: undo the blur of shifts.

    sharpening    w_n = v_n^γ / Σ_n' v_n'^γ = softmax(γ log v)_n         γ = 1 + softplus       O(H N)

In powers, an address of 128 equal weights underflows in float32 from γ = 21 on: 0 / 0. In logarithms the largest weight
is divided out first, so that any γ gives numbers. A weight of 0 stays 0 and passes no gradient.

Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (equation 9)
"""

from __future__ import annotations

import torch

from regard.attention.addressing.base import Addressing
from regard.attention.addressing.content import strength
from regard.core.shapes import Float, Tensor


class Sharpening(Addressing):
    """A power of the address, normalised; raw is the power."""

    def raw_width(self, word: int) -> int:
        return 1

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        return sharpen(weights, strength(raw))


def sharpen(weights: Float[Tensor, "*rows N"], power: Float[Tensor, "*rows 1"]) -> Float[Tensor, "*rows N"]:
    """Return the weights to a power, normalised to sum to one; equal weights where all are zero."""
    return (power * weights.clamp(min=torch.finfo(weights.dtype).tiny).log()).softmax(-1)
