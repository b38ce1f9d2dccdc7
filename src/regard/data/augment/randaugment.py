"""RandAugment: a few operations for each image, drawn from fifteen, all of about one strength.

    strength    normal around one number, from 0 to 10        the only two things to choose: it and how many
    chance      each operation is left out with 1 - chance    (0.5 in timm's "rand-m9-mstd0.5-inc1", 1 in the paper)

Which operation an image gets differs from image to image; ranges.py does all of them in three passes.

Cubuk, Zoph, Shlens, Le: RandAugment: Practical automated data augmentation with a reduced search space. NeurIPS 2020.
arXiv:1909.13719
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Tensor
from regard.data.augment.draws import allowed, coins, integers
from regard.data.augment.ranges import OPERATIONS, applied


class RandAugment:
    """So many operations of about one strength."""

    def __init__(self, many: int = 2, strength: float = 9.0, spread: float = 0.5, chance: float = 0.5) -> None:
        allowed("randaugment(many", many, 1, len(OPERATIONS))
        allowed("randaugment(strength", strength, 0, 10)
        allowed("randaugment(spread", spread, 0, 10)
        allowed("randaugment(chance", chance, 0, 1)
        self.many, self.strength, self.spread, self.chance = many, strength, spread, chance

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        """Each image with its operations done, one after another."""
        b = len(pixels)
        for _ in range(self.many):
            which = integers(b, len(OPERATIONS), generator)
            which = torch.where(coins(b, self.chance, generator), which, -1)
            noise = torch.randn(b, generator=generator, device=generator.device)
            strength = (self.strength + self.spread * noise).clamp(0, 10)
            sign = 1 - 2 * coins(b, 0.5, generator).float()
            pixels = applied(pixels, which, strength, sign)
        return pixels
