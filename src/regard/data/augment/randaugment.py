"""RandAugment: a few operations for each image, sampled from fifteen, all of about one strength.

    magnitude   mean strength, from 0 to 10; with num_ops the only two settings to choose
    p           probability of each operation    (0.5 in timm's "rand-m9-mstd0.5-inc1", 1 in the paper)

Operations differ from image to image; operations.py applies all of them in three passes.

Cubuk, Zoph, Shlens, Le: RandAugment: Practical automated data augmentation with a reduced search space. NeurIPS 2020.
arXiv:1909.13719
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Tensor
from regard.data.augment.operations import OPERATIONS, apply_operations
from regard.data.augment.sampling import bernoulli, check_range, random_integers


class RandAugment:
    """`num_ops` operations of about one strength."""

    def __init__(self, num_ops: int = 2, magnitude: float = 9.0, magnitude_std: float = 0.5, p: float = 0.5) -> None:
        check_range("randaugment(num_ops", num_ops, 1, len(OPERATIONS))
        check_range("randaugment(magnitude", magnitude, 0, 10)
        check_range("randaugment(magnitude_std", magnitude_std, 0, 10)
        check_range("randaugment(p", p, 0, 1)
        self.num_ops, self.magnitude, self.magnitude_std, self.p = num_ops, magnitude, magnitude_std, p

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        b = len(pixels)
        for _ in range(self.num_ops):
            which = random_integers(b, len(OPERATIONS), generator)
            which = torch.where(bernoulli(b, self.p, generator), which, -1)
            noise = torch.randn(b, generator=generator, device=generator.device)
            strength = (self.magnitude + self.magnitude_std * noise).clamp(0, 10)
            sign = 1 - 2 * bernoulli(b, 0.5, generator).float()
            pixels = apply_operations(pixels, which, strength, sign)
        return pixels
