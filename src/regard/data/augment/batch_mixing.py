"""Mix two images: each keeps a part of itself and takes the rest from another of its batch, and so does its label.

    x  <-  w · x + (1 - w) · x[other]        t  <-  λ t + (1 - λ) t[other],    λ the mean of w

Mixup and CutMix differ only in the weights w. With both on, one is chosen at random for each image. Partners are
sampled anew for every batch; an image may be its own partner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from regard.core.shapes import Float, Tensor
from regard.data.augment.sampling import random_integers

MixMethod = Callable[[int, int, int, torch.Generator], Tensor]


def mix_batch(
    values: Float[Tensor, "B C Y X"],
    targets: Float[Tensor, "B K"],
    methods: Sequence[MixMethod],
    generator: torch.Generator,
    enabled: bool | Tensor = True,
) -> tuple[Float[Tensor, "B C Y X"], Float[Tensor, "B K"]]:
    """Mix images and labels; return them unchanged without methods, or where not `enabled` (a bool on the device)."""
    if not methods or enabled is False:
        return values, targets
    b, _, y, x = values.shape
    which = random_integers(b, len(methods), generator)
    weight = torch.ones(b, 1, y, x, device=values.device)
    for number, method in enumerate(methods):
        weight = torch.where((which == number)[:, None, None, None], method(b, y, x, generator), weight)
    if isinstance(enabled, Tensor):
        weight = torch.where(enabled, weight, 1.0)
    other = torch.rand(b, generator=generator, device=generator.device).argsort()
    share = weight.mean((1, 2, 3))[:, None]
    weight = weight.to(values.dtype)
    return torch.lerp(values[other], values, weight), share * targets + (1 - share) * targets[other]
