"""Change brightness, contrast, saturation and hue of each image at random, in this order.

    brightness, contrast, saturation    factors from 1 - x to 1 + x
    hue                                 rotation by up to this part of the colour circle, at most 0.5

Grey images have no saturation and no hue.
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Float, Tensor
from regard.data.augment import lookup_tables
from regard.data.augment.operations import blend
from regard.data.augment.sampling import check_range, uniform

Pixels = UInt8[Tensor, "B C Y X"]


class ColorJitter:
    """Random change of colours."""

    def __init__(
        self, brightness: float = 0.4, contrast: float = 0.4, saturation: float = 0.4, hue: float = 0.0
    ) -> None:
        check_range("color_jitter(brightness", brightness, 0, 10)
        check_range("color_jitter(contrast", contrast, 0, 10)
        check_range("color_jitter(saturation", saturation, 0, 10)
        check_range("color_jitter(hue", hue, 0, 0.5)
        self.brightness, self.contrast, self.saturation, self.hue = brightness, contrast, saturation, hue

    def __call__(self, pixels: Pixels, generator: torch.Generator) -> Pixels:
        b = len(pixels)
        light, contrast, colour = (
            uniform(b, max(0.0, 1 - by), 1 + by, generator) for by in (self.brightness, self.contrast, self.saturation)
        )
        pixels = lookup_tables.apply_tables(pixels, lookup_tables.brightness(light))
        pixels = lookup_tables.apply_tables(pixels, lookup_tables.contrast(pixels, contrast))
        if pixels.shape[1] == 1:
            return pixels
        pixels = blend(pixels, lookup_tables.gray(pixels), colour)
        return rotate_hue(pixels, uniform(b, -self.hue, self.hue, generator)) if self.hue else pixels


def rotate_hue(pixels: UInt8[Tensor, "B 3 Y X"], by: Float[Tensor, " B"]) -> UInt8[Tensor, "B 3 Y X"]:
    """Rotate every hue by a part of the colour circle; lightness and saturation stay."""
    values = pixels.float() / 255
    high, low = values.amax(1), values.amin(1)
    wide = (high - low).clamp(min=1e-8)
    r, g, b = values.unbind(1)
    sixth = torch.where(
        high == r, (g - b) / wide % 6, torch.where(high == g, (b - r) / wide + 2, (r - g) / wide + 4)
    )  # sixths of the circle, from red
    sixth = sixth + 6 * by[:, None, None]
    channels = [(sixth + at) % 6 for at in (5, 3, 1)]  # red, green, blue: distance from the peak of each
    made = [high - (high - low) * torch.minimum(k, 4 - k).clamp(0, 1) for k in channels]
    return (torch.stack(made, 1) * 255).round_().clamp_(0, 255).byte()
