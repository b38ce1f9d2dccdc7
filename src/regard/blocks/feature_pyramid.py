"""A pyramid of features from blocks that all have one grid: what detectors ask of a model, of one that is no pyramid.

    depths        after a quarter, a half, three quarters and all of the blocks
    resampled     the grids of these depths, drawn larger or smaller to strides of 4, 8, 16 and 32 pixels

Nothing is learned in between: maps are interpolated (bilinear, smoothed where they shrink).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F

from regard.core.shapes import Float, Tensor
from regard.tokens.patches import grid_size

STRIDES = (4, 8, 16, 32)  # pixels from one place of a map to the next


def pyramid_layers(layers: int) -> list[int]:
    """After how many of the blocks the tokens are taken: four times, the last after all."""
    return [-(-layers * part // len(STRIDES)) for part in range(1, len(STRIDES) + 1)]


def resample_to_strides(grids: Sequence[Float[Tensor, "B y x D"]], size: tuple[int, int]) -> list[Tensor]:
    """Grids as maps B D Y X, one for each stride, of images with these rows and columns."""
    return [
        F.interpolate(x.movedim(-1, 1), grid_size(size, stride), mode="bilinear", align_corners=False, antialias=True)
        for x, stride in zip(grids, STRIDES, strict=True)
    ]
