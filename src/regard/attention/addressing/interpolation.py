"""Interpolation: a gate between the address just made and that of the step before.

    interpolation    w = g w_content + (1 - g) w_before       g = σ, one number per head      O(H N)

With g = 0 content is ignored: the head stays where it was, and a shift moves it on from there.

Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (equation 7)
"""

from __future__ import annotations

import torch

from regard.attention.addressing.base import Addressing
from regard.core.shapes import Float, Tensor


class Interpolation(Addressing):
    """A gate per head; raw is the gate."""

    def raw_width(self, word: int) -> int:
        return 1

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        return torch.lerp(previous, weights, torch.sigmoid(raw))
