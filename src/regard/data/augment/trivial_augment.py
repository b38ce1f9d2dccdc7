"""TrivialAugment: one operation for each image, of uniformly sampled strength. Nothing to tune.

The operations and their ranges are those of RandAugment here; the paper's "wide" ranges reach further.

Müller, Hutter: TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation. ICCV 2021. arXiv:2103.10158
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Tensor
from regard.data.augment.operations import OPERATIONS, apply_operations
from regard.data.augment.sampling import bernoulli, random_integers, uniform


class TrivialAugment:
    """One operation of random strength, or none."""

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        b = len(pixels)
        which = random_integers(b, len(OPERATIONS) + 1, generator) - 1
        sign = 1 - 2 * bernoulli(b, 0.5, generator).float()
        return apply_operations(pixels, which, uniform(b, 0, 10, generator), sign)
