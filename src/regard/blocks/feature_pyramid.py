"""A feature pyramid, as detectors need it, from a model whose blocks all have one grid.

depths        after a quarter, a half, three quarters and all of the blocks
resampled     the grids of these depths, interpolated to strides of 4, 8, 16 and 32 pixels (bilinear, antialiased)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F

from regard.core.shapes import Float, Tensor
from regard.tokens.patches import grid_size

STRIDES = (4, 8, 16, 32)  # in pixels


def pyramid_layers(layers: int) -> list[int]:
    """Return the four numbers of blocks after which features are taken; the last is all of them."""
    return [-(-layers * part // len(STRIDES)) for part in range(1, len(STRIDES) + 1)]


def resample_to_strides(grids: Sequence[Float[Tensor, "B y x D"]], size: tuple[int, int]) -> list[Tensor]:
    """Return the grids as maps B D Y X, one for each stride, for images of this size."""
    return [
        F.interpolate(x.movedim(-1, 1), grid_size(size, stride), mode="bilinear", align_corners=False, antialias=True)
        for x, stride in zip(grids, STRIDES, strict=True)
    ]
