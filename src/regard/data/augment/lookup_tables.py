"""Pixelwise operations as lookup tables: 256 bytes for each image and channel.

    brightness     f i                                        i the byte, f a factor for each image
    contrast       f i + (1 - f) mean                         mean of the grey image
    posterize      i without its lowest bits
    solarize       255 - i from a threshold on
    solarize_add   i + an amount below 128
    invert         255 - i
    autocontrast   (i - lowest) · 255 / (highest - lowest)    of the channel
    equalize       the share of the channel's pixels below i, · 255

One lookup then applies a different operation to every image of the batch. Bytes are truncated, not rounded, as in
Pillow and torchvision.
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8

from regard.core.shapes import Float, Int, Tensor

Tables = UInt8[Tensor, "#B #C 256"]
LUMA = (0.2989, 0.587, 0.114)


def apply_tables(pixels: UInt8[Tensor, "B C Y X"], tables: Tables) -> UInt8[Tensor, "B C Y X"]:
    """Look up each pixel in the table of its image and channel."""
    full = tables.expand(*pixels.shape[:2], 256)
    return full.gather(2, pixels.flatten(2).long()).view_as(pixels)


def brightness(factor: Float[Tensor, " B"]) -> Tables:
    """Return tables that scale by a factor."""
    return _bytes(factor[:, None, None] * byte_values(factor))


def contrast(pixels: UInt8[Tensor, "B C Y X"], factor: Float[Tensor, " B"]) -> Tables:
    """Return tables that scale the distance from the mean by a factor."""
    mean = gray(pixels).mean((1, 2, 3))
    return _bytes(factor[:, None, None] * byte_values(factor) + ((1 - factor) * mean)[:, None, None])


def posterize(bits: Int[Tensor, " B"], like: Tensor) -> Tables:
    """Return tables that keep only the highest bits."""
    low = 2 ** (8 - bits)[:, None, None]
    return (byte_values(like).long() // low * low).byte()


def solarize(threshold: Float[Tensor, " B"]) -> Tables:
    """Return tables that invert values from a threshold on."""
    i = byte_values(threshold)
    return torch.where(i >= threshold[:, None, None], 255 - i, i).byte()


def solarize_add(add: Float[Tensor, " B"]) -> Tables:
    """Return tables that add to values below 128."""
    i = byte_values(add)
    return _bytes(torch.where(i < 128, i + add[:, None, None].floor(), i))


def invert(like: Tensor) -> Tables:
    """Return the table that inverts."""
    return (255 - byte_values(like)).byte()


def autocontrast(pixels: UInt8[Tensor, "B C Y X"]) -> Tables:
    """Return tables that stretch every channel to 0 to 255."""
    flat = pixels.flatten(2).float()
    low, high = flat.amin(-1, keepdim=True), flat.amax(-1, keepdim=True)
    i, wide = byte_values(flat), high - low
    return _bytes(torch.where(wide > 0, (i - low) / (wide.clamp(min=1) * (1 / 255)), i))


def equalize(pixels: UInt8[Tensor, "B C Y X"]) -> Tables:
    """Return tables that equalise the histogram of every channel."""
    b, c, y, x = pixels.shape
    flat = pixels.flatten(2).long()
    channel = torch.arange(b * c, device=pixels.device).view(b, c, 1) * 256
    counts = torch.zeros(b * c * 256, dtype=torch.int64, device=pixels.device)
    counts = counts.scatter_add_(0, (flat + channel).flatten(), torch.ones_like(flat).flatten()).view(b, c, 256)
    last = counts.gather(2, flat.amax(-1, keepdim=True))
    step = (y * x - last) // 255
    below = counts.cumsum(-1) - counts
    found = (below + step // 2) // step.clamp(min=1)
    return torch.where(step > 0, found.clamp(0, 255), byte_values(flat).long()).byte()


def gray(pixels: UInt8[Tensor, "B C Y X"]) -> Float[Tensor, "B 1 Y X"]:
    """Return the luminance of each pixel."""
    if pixels.shape[1] == 1:
        return pixels.float()
    r, g, b = pixels.float().unbind(1)
    return (LUMA[0] * r + LUMA[1] * g + LUMA[2] * b).floor_()[:, None]


def byte_values(like: Tensor) -> Float[Tensor, " 256"]:
    """Return all bytes in order."""
    return torch.arange(256, dtype=torch.float32, device=like.device)


def _bytes(values: Float[Tensor, "#B #C 256"]) -> Tables:
    return values.clamp(0, 255).byte()
