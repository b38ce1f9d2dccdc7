"""Circular shift: move an address by a few cells, around the end of the memory.

    shift       w_i = Σ_s p_s v_{(i - s) mod N}       p = softmax over s = -R ... R      O(H N R)

Each head has a distribution over shifts: a sharp one moves the address, a flat one blurs it. The sum of the weights
does not change.

Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401 (equation 8)
"""

from __future__ import annotations

import torch

from regard.attention.addressing.base import Addressing
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor


class CircularShift(Addressing):
    """Shifts by up to `max_shift` cells; raw has a score for each, from -max_shift (to lower cells) on."""

    def __init__(self, max_shift: int = 1) -> None:
        super().__init__()
        self.max_shift = max_shift

    def raw_width(self, word: int) -> int:
        return 2 * self.max_shift + 1

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        most = self.max_shift
        if most > weights.shape[-1]:
            raise BadInput(f"a memory of {weights.shape[-1]} cells cannot be shifted by {most}; lower max_shift")
        around = torch.cat([weights[..., -most:], weights, weights[..., :most]], -1)
        # window i holds cells i - R to i + R; the shift by s comes from cell i - s, so the order is reversed
        shifts = raw.softmax(-1).flip(-1)
        return (around.unfold(-1, 2 * most + 1, 1) @ shifts[..., None]).squeeze(-1)

    def extra_repr(self) -> str:
        return f"max_shift={self.max_shift}"
