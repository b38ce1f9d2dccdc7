"""Random erasing: fill a rectangle of some images with noise, so that the model does not rely on a single part.

    area     between 2 % and a third of the image
    ratio    between 0.3 and 3.3, log-uniform
    noise    normal for each pixel and channel, as wide as pixels of photographs are (noise=0: grey)

Zhong, Zheng, Kang, Li, Yang: Random Erasing Data Augmentation. AAAI 2020. arXiv:1708.04896
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Tensor
from regard.data.augment.sampling import bernoulli, box_mask, check_range, log_uniform, random_boxes, uniform

GREY, NOISE_STD = 122.0, 62.0  # mean and standard deviation of the pixels of photographs
AREA, RATIO = (0.02, 1 / 3), 3.3


class RandomErasing:
    """Erase a random rectangle with probability `p`."""

    def __init__(self, p: float = 0.25, noise: float = NOISE_STD) -> None:
        check_range("random_erasing(p", p, 0, 1)
        check_range("random_erasing(noise", noise, 0, 255)
        self.p, self.noise = p, noise

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        b, _, y, x = pixels.shape
        area, shape = uniform(b, *AREA, generator) * (y * x), log_uniform(b, 1 / RATIO, RATIO, generator)
        box = random_boxes((area / shape).sqrt(), (area * shape).sqrt(), y, x, generator)
        erased = box_mask(box, y, x) & bernoulli(b, self.p, generator)[:, None, None, None]
        fill = torch.randn(pixels.shape, generator=generator, device=pixels.device)
        return torch.where(erased, (fill * self.noise + GREY).round_().clamp_(0, 255).byte(), pixels)
