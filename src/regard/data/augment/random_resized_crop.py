"""Crop a random piece of each image and resize it to the image's size.

    area     between `min_area` and `max_area` of the image's, uniform
    ratio    width over height between 1 / ratio and ratio, log-uniform; a side is never longer than the image's

Pixels are interpolated without antialiasing, so shrink images to about the model's size beforehand.

Szegedy et al.: Going Deeper with Convolutions. CVPR 2015. arXiv:1409.4842, section 6
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import Range
from regard.data.augment.sampling import log_uniform, uniform
from regard.data.augment.warp import Side, affine_matrices, warp_images


class RandomResizedCrop:
    """Random crop, resized to the image's size."""

    def __init__(
        self, min_area: float = 0.08, max_area: float = 1.0, ratio: Annotated[float, Range(above=0)] = 4 / 3
    ) -> None:
        if not 0 < min_area <= max_area <= 1:
            raise BadInput(
                f"random_resized_crop(min_area={min_area}, max_area={max_area}): needs 0 < min_area <= max_area <= 1"
            )
        if not 1 <= ratio < math.inf:
            raise BadInput(f"random_resized_crop(ratio={ratio}): the longest side over the shortest, 1 or more")
        self.min_area, self.max_area, self.ratio = min_area, max_area, ratio

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        b, _, y, x = pixels.shape
        return warp_images(pixels, self.matrices(b, y, x, generator), outside=None)

    def matrices(self, b: int, y: Side, x: Side, generator: torch.Generator) -> Float[Tensor, "b 2 3"]:
        area = uniform(b, self.min_area, self.max_area, generator)
        shape = log_uniform(b, 1 / self.ratio, self.ratio, generator)
        wide, tall = (area * shape).sqrt().clamp(max=1), (area / shape).sqrt().clamp(max=1)  # shares of the sides
        left = (uniform(b, -1, 1, generator) * (1 - wide)) * (x / 2)  # offset of the crop's centre from the image's
        top = (uniform(b, -1, 1, generator) * (1 - tall)) * (y / 2)
        return affine_matrices(wide, 0.0, left, 0.0, tall, top)
