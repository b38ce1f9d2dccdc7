"""CutMix: paste a rectangle of one image into another, and mix the labels by area.

    weight = 0 in a rectangle of the area 1 - λ, 1 around it,    λ ~ Beta(α, α) for each image

The rectangle has the image's aspect ratio and lies inside it. Labels are mixed by the actual area in pixels.

Yun, Han, Oh, Chun, Choe, Yoo: CutMix. ICCV 2019. arXiv:1905.04899
"""

from __future__ import annotations

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.augment.mixup import MAX_ALPHA, sample_beta
from regard.data.augment.sampling import box_mask, random_boxes


class CutMix:
    """Weights of an image: 1 or 0, pixel by pixel."""

    def __init__(self, alpha: float = 1.0) -> None:
        if not 0 < alpha <= MAX_ALPHA:
            raise BadInput(f"cutmix(alpha={alpha}): alpha must be above 0 and at most {MAX_ALPHA}")
        self.alpha = alpha

    def __call__(self, b: int, y: int, x: int, generator: torch.Generator) -> Float[Tensor, "b 1 y x"]:
        """Return 0 in a rectangle of each image, 1 around it."""
        side = (1 - sample_beta(b, self.alpha, generator)).sqrt()
        return 1 - box_mask(random_boxes(side * y, side * x, y, x, generator), y, x).float()
