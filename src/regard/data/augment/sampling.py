"""Random numbers for a batch, from a generator on its device: made where they are used, nothing is copied."""

from __future__ import annotations

import math

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor


def check_range(what: str, value: float, low: float, high: float) -> None:
    """Raise unless an argument of an augmentation, ``flip(p``, is in a range."""
    if not (isinstance(value, (int, float)) and low <= value <= high):
        raise BadInput(f"{what}={value}): a number from {low:g} to {high:g} is expected")


def uniform(n: int, low: float | Tensor, high: float | Tensor, generator: torch.Generator) -> Float[Tensor, " n"]:
    """Sample uniformly between low and high, one number per image; either may be a number for each of them."""
    return low + (high - low) * torch.rand(n, generator=generator, device=generator.device)


def log_uniform(n: int, low: float, high: float, generator: torch.Generator) -> Float[Tensor, " n"]:
    """Sample with uniform logarithm between low and high, for ratios."""
    return uniform(n, math.log(low), math.log(high), generator).exp()


def bernoulli(n: int, p: float, generator: torch.Generator) -> Bool[Tensor, " n"]:
    """Return True with probability p, for each image."""
    return torch.rand(n, generator=generator, device=generator.device) < p


def random_integers(n: int, below: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Sample a whole number from 0 to below - 1 for each image."""
    return torch.randint(below, (n,), generator=generator, device=generator.device)


def random_boxes(
    height: Float[Tensor, " n"], width: Float[Tensor, " n"], y: int, x: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Place boxes of these sizes, in whole pixels, at random in images of y x x; return top, bottom, left, right."""
    tall, wide = height.round().clamp(0, y), width.round().clamp(0, x)
    n = len(tall)
    top = (uniform(n, 0, 1, generator) * (y - tall + 1)).floor().clamp(max=y)
    left = (uniform(n, 0, 1, generator) * (x - wide + 1)).floor().clamp(max=x)
    return top, top + tall, left, left + wide


def box_mask(box: tuple[Tensor, Tensor, Tensor, Tensor], y: int, x: int) -> Bool[Tensor, "n 1 y x"]:
    """Return which pixels are in the box of each image."""
    top, bottom, left, right = (edge[:, None] for edge in box)
    rows, columns = (torch.arange(side, device=top.device) for side in (y, x))
    tall, wide = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return (tall[:, :, None] & wide[:, None, :])[:, None]
