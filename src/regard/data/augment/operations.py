"""The fifteen operations of RandAugment, a different one for each image of a batch.

    tables     autocontrast, equalize, invert, posterize, solarize, solarize_add, contrast, brightness   (lookup_tables)
    warps      rotate, shear_x, shear_y, translate_x, translate_y                                        (warp)
    blends     color: with the grey image;  sharpness: with the blurred image          f x + (1 - f) other

Every operation is one of three kinds, so a batch takes three passes: one lookup, one warp, one blend. An image whose
operation is of another kind keeps its pixels, to the bit.

Strengths run from 0 to 10; at 10: rotation 30 degrees, shear 0.3, shift 0.45 of a side, factors 1 ± 0.9, one bit left,
everything solarized, 110 added; signs are random.

Cubuk, Zoph, Shlens, Le: RandAugment. 2019. arXiv:1909.13719; ranges that increase with the strength as in timm
"""

from __future__ import annotations

import math

import torch
from jaxtyping import UInt8

from regard.core.shapes import Float, Int, Tensor
from regard.data.augment import lookup_tables
from regard.data.augment.warp import affine_matrices, warp_images

TABLE_OPERATIONS = (
    "autocontrast", "equalize", "invert", "posterize", "solarize", "solarize_add", "contrast", "brightness",
)  # fmt: skip
WARP_OPERATIONS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
BLEND_OPERATIONS = ("color", "sharpness")
OPERATIONS = (*TABLE_OPERATIONS, *WARP_OPERATIONS, *BLEND_OPERATIONS)

Pixels = UInt8[Tensor, "B C Y X"]


def apply_operations(
    pixels: Pixels, which: Int[Tensor, " B"], strength: Float[Tensor, " B"], sign: Float[Tensor, " B"]
) -> Pixels:
    """Apply to each image its operation (index into OPERATIONS; -1: none) with strength 0 to 10 and sign ±1."""
    pixels = _table(pixels, which, strength, sign)
    pixels = _warp(pixels, which - len(TABLE_OPERATIONS), strength * sign / 10)
    return _blend(pixels, which - len(TABLE_OPERATIONS) - len(WARP_OPERATIONS), enhance_factor(strength, sign))


def enhance_factor(strength: Float[Tensor, " B"], sign: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return the factor of an enhancement: 1 ± 0.9 at most."""
    return (1 + 0.09 * strength * sign).clamp(min=0.1)


def _table(pixels: Pixels, which: Tensor, strength: Tensor, sign: Tensor) -> Pixels:
    level, f = strength / 10, enhance_factor(strength, sign)
    made = (
        lookup_tables.autocontrast(pixels),
        lookup_tables.equalize(pixels),
        lookup_tables.invert(strength),
        lookup_tables.posterize((4 - (level * 4).long()).clamp(min=1), strength),
        lookup_tables.solarize(256 - (level * 256).floor()),
        lookup_tables.solarize_add(level * 110),
        lookup_tables.contrast(pixels, f),
        lookup_tables.brightness(f),
    )
    chosen = lookup_tables.byte_values(strength).byte().expand(*pixels.shape[:2], 256)
    for number, table in enumerate(made):
        chosen = torch.where((which == number)[:, None, None], table, chosen)
    return lookup_tables.apply_tables(pixels, chosen)


def _warp(pixels: Pixels, which: Tensor, level: Tensor) -> Pixels:
    y, x = pixels.shape[2:]
    most = (math.radians(30), 0.3, 0.3, 0.45 * x, 0.45 * y)
    turn, right_shear, down_shear, right, down = (
        torch.where(which == number, level * by, 0.0) for number, by in enumerate(most)
    )
    cos, sin = turn.cos(), turn.sin()
    found = warp_images(pixels, affine_matrices(cos, right_shear - sin, right, down_shear + sin, cos, down))
    return torch.where(((which >= 0) & (which < len(WARP_OPERATIONS)))[:, None, None, None], found, pixels)


def _blend(pixels: Pixels, which: Tensor, f: Tensor) -> Pixels:
    where = (which == 0)[:, None, None, None]
    other = torch.where(where, lookup_tables.gray(pixels), blur(pixels))
    return torch.where((which >= 0)[:, None, None, None], blend(pixels, other, f), pixels)


def blend(pixels: Pixels, other: Float[Tensor, "B #C Y X"], f: Float[Tensor, " B"]) -> Pixels:
    """Return f · pixels + (1 - f) · other."""
    f = f[:, None, None, None]
    return (f * pixels.float() + (1 - f) * other).clamp(0, 255).byte()


def blur(pixels: Pixels) -> Float[Tensor, "B C Y X"]:
    """Smooth with weight 5 for each pixel and 1 for each neighbour, over 13; the border stays."""
    values = pixels.float()
    if min(pixels.shape[2:]) < 3:
        return values
    across = values[..., :-2] + values[..., 1:-1] + values[..., 2:]
    around = across[:, :, :-2] + across[:, :, 1:-1] + across[:, :, 2:]
    inner = values[:, :, 1:-1, 1:-1]
    inner.copy_(((around + 4 * inner) / 13).round_())
    return values
