"""Random numbers for a batch, from a generator that is handed in.

`seeded` draws one number from the run's own generator, which lives on the host and is in its checkpoints; it seeds a
generator on the device of a batch. So numbers are made where they are used, nothing is copied, and a run that is taken
up again draws the same ones.
"""

from __future__ import annotations

import math

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor


def draw_seed(rng: torch.Generator | None) -> int:
    """A seed for a generator elsewhere, from this one; without one, from torch's own."""
    return int(torch.randint(2**62, (), generator=rng))


def check_range(what: str, value: float, low: float, high: float) -> None:
    """Refuse a number of an augmentation, ``flip(chance``, that is not between two others."""
    if not (isinstance(value, (int, float)) and low <= value <= high):
        raise BadInput(f"{what}={value}): a number from {low:g} to {high:g} is needed")


def uniform(n: int, low: float, high: float, generator: torch.Generator) -> Float[Tensor, " n"]:
    """A number between two others for each image."""
    return low + (high - low) * torch.rand(n, generator=generator, device=generator.device)


def log_uniform(n: int, low: float, high: float, generator: torch.Generator) -> Float[Tensor, " n"]:
    """The same with a logarithm that is evenly spread, for ratios."""
    return uniform(n, math.log(low), math.log(high), generator).exp()


def bernoulli(n: int, chance: float, generator: torch.Generator) -> Bool[Tensor, " n"]:
    """True with a chance, for each image."""
    return torch.rand(n, generator=generator, device=generator.device) < chance


def random_integers(n: int, below: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """A whole number from 0 to below - 1 for each image."""
    return torch.randint(below, (n,), generator=generator, device=generator.device)


def random_boxes(
    height: Float[Tensor, " n"], width: Float[Tensor, " n"], y: int, x: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where boxes of these sizes, in whole pixels, begin and end in images of y x x: top, bottom, left, right."""
    tall, wide = height.round().clamp(0, y), width.round().clamp(0, x)
    n = len(tall)
    top = (uniform(n, 0, 1, generator) * (y - tall + 1)).floor().clamp(max=y)
    left = (uniform(n, 0, 1, generator) * (x - wide + 1)).floor().clamp(max=x)
    return top, top + tall, left, left + wide


def box_mask(box: tuple[Tensor, Tensor, Tensor, Tensor], y: int, x: int) -> Bool[Tensor, "n 1 y x"]:
    """Which pixels are in a box, for each image."""
    top, bottom, left, right = (edge[:, None] for edge in box)
    rows, columns = (torch.arange(side, device=top.device) for side in (y, x))
    tall, wide = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return (tall[:, :, None] & wide[:, None, :])[:, None]
