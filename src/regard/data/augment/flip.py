"""Mirror half of the images.

Not for what reads from left to right: digits, letters, traffic signs.
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Float, Tensor
from regard.data.augment.sampling import bernoulli, check_range
from regard.data.augment.warp import Side, affine_matrices


class Flip:
    """Random horizontal flip."""

    def __init__(self, p: float = 0.5) -> None:
        check_range("flip(p", p, 0, 1)
        self.p = p

    def matrices(self, n: int, y: Side, x: Side, generator: torch.Generator) -> Float[Tensor, "n 2 3"]:
        sign = 1 - 2 * bernoulli(n, self.p, generator).float()
        return affine_matrices(sign, 0.0, 0.0, 0.0, 1.0, 0.0)

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        flipped = bernoulli(len(pixels), self.p, generator)
        return torch.where(flipped[:, None, None, None], pixels.flip(-1), pixels)
