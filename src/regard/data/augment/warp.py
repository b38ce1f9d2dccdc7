"""Affine warps of images: each by its own matrix, all in one pass.

    pixel (y, x) of the result  =  the image at  matrix · (x, y, 1),    both relative to the centre, in pixels

Values are interpolated bilinearly; outside the image they are grey. An augmentation that is such a warp has a method
`matrices(n, y, x, generator)`, by which scenes are warped with all that is known about them (augment.scenes).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import UInt8

from regard.core.shapes import Float, Tensor

GRAY = 128.0
Side = float | Float[Tensor, " B"]  # rows or columns of all images, or of each


def warp_images(
    pixels: UInt8[Tensor, "B C Y X"], matrices: Float[Tensor, "B 2 3"], outside: float | None = GRAY
) -> UInt8[Tensor, "B C Y X"]:
    """Warp each image by its matrix; `outside` None: repeat the nearest edge."""
    y, x = pixels.shape[2:]
    rows = torch.arange(y, device=pixels.device) - (y - 1) / 2
    columns = torch.arange(x, device=pixels.device) - (x - 1) / 2
    u = matrices[:, :, 0, None, None] * columns + matrices[:, :, 1, None, None] * rows[:, None]
    u = u + matrices[:, :, 2, None, None]  # B 2 Y X, in pixels from the middle
    grid = torch.stack([u[:, 0] * (2 / x), u[:, 1] * (2 / y)], -1)  # edges at -1 and 1
    shift = 0.0 if outside is None else outside
    border = "border" if outside is None else "zeros"
    found = F.grid_sample(pixels.float() - shift, grid, mode="bilinear", padding_mode=border, align_corners=False)
    return (found + shift).round_().clamp_(0, 255).byte()


def affine_matrices(
    a: Tensor | float, b: Tensor | float, c: Tensor | float, d: Tensor | float, e: Tensor | float, f: Tensor | float
) -> Float[Tensor, "B 2 3"]:
    """Return matrices [[a, b, c], [d, e, f]]; each number is per image or for all, at least one per image."""
    some = next(value for value in (a, b, c, d, e, f) if isinstance(value, Tensor))
    full = [value if isinstance(value, Tensor) else torch.full_like(some, value) for value in (a, b, c, d, e, f)]
    return torch.stack(full, -1).unflatten(-1, (2, 3))
