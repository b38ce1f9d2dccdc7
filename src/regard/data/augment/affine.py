"""Each image turned, sheared, magnified and moved a little, all at once: how hands and cameras differ.

    turn     by up to so many degrees              grow    by a factor of up to 1 + so much, or its inverse
    shear    by up to so much                      move    by up to so much of a side

What comes in from outside is as dark as `outside` says: 0 for digits on black, 128 for photographs.

Simard, Steinkraus, Platt: Best Practices for Convolutional Neural Networks Applied to Visual Document Analysis.
ICDAR 2003
"""

from __future__ import annotations

import math

import torch
from jaxtyping import UInt8

from regard.core.shapes import Tensor
from regard.data.augment.draws import allowed, log_uniform, uniform
from regard.data.augment.warp import matrix, warped


class Affine:
    """A little turned, sheared, magnified and moved."""

    def __init__(
        self, turn: float = 10.0, shear: float = 0.1, grow: float = 0.1, move: float = 0.1, outside: float = 0.0
    ) -> None:
        allowed("affine(turn", turn, 0, 180)
        allowed("affine(shear", shear, 0, 10)
        allowed("affine(grow", grow, 0, 10)
        allowed("affine(move", move, 0, 1)
        allowed("affine(outside", outside, 0, 255)
        self.turn, self.shear, self.grow, self.move, self.outside = turn, shear, grow, move, outside

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        """Each image in its own way."""
        b, _, y, x = pixels.shape
        turn = uniform(b, -math.radians(self.turn), math.radians(self.turn), generator)
        shear = uniform(b, -self.shear, self.shear, generator)
        grow = log_uniform(b, 1 / (1 + self.grow), 1 + self.grow, generator)
        right, down = (uniform(b, -self.move * side, self.move * side, generator) for side in (x, y))
        cos, sin = grow * turn.cos(), grow * turn.sin()
        return warped(pixels, matrix(cos, shear * cos - sin, right, sin, shear * sin + cos, down), self.outside)
