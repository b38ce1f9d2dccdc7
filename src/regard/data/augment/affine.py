"""Rotate, shear, scale and translate each image a little, in one pass.

    degrees   largest rotation                     scale       factor from 1 / (1 + scale) to 1 + scale
    shear     largest shear                        translate   largest shift, relative to the side

Pixels from outside the image are `fill`: 0 for digits on black, 128 for photographs.

Simard, Steinkraus, Platt: Best Practices for Convolutional Neural Networks Applied to Visual Document Analysis.
ICDAR 2003
"""

from __future__ import annotations

import math

import torch
from jaxtyping import UInt8

from regard.core.shapes import Float, Tensor
from regard.data.augment.sampling import check_range, log_uniform, uniform
from regard.data.augment.warp import Side, affine_matrices, warp_images


class Affine:
    """Random affine transformation."""

    def __init__(
        self, degrees: float = 10.0, shear: float = 0.1, scale: float = 0.1, translate: float = 0.1, fill: float = 0.0
    ) -> None:
        check_range("affine(degrees", degrees, 0, 180)
        check_range("affine(shear", shear, 0, 10)
        check_range("affine(scale", scale, 0, 10)
        check_range("affine(translate", translate, 0, 1)
        check_range("affine(fill", fill, 0, 255)
        self.degrees, self.shear, self.scale, self.translate, self.fill = degrees, shear, scale, translate, fill

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        b, _, y, x = pixels.shape
        return warp_images(pixels, self.matrices(b, y, x, generator), self.fill)

    def matrices(self, b: int, y: Side, x: Side, generator: torch.Generator) -> Float[Tensor, "b 2 3"]:
        angle = uniform(b, -math.radians(self.degrees), math.radians(self.degrees), generator)
        shear = uniform(b, -self.shear, self.shear, generator)
        factor = log_uniform(b, 1 / (1 + self.scale), 1 + self.scale, generator)
        right, down = (uniform(b, -self.translate * side, self.translate * side, generator) for side in (x, y))
        cos, sin = factor * angle.cos(), factor * angle.sin()
        return affine_matrices(cos, shear * cos - sin, right, sin, shear * sin + cos, down)
