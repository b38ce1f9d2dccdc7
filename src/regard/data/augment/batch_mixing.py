"""Two images in one: each keeps a part of itself and takes the rest from another of its batch, and so does its label.

    x  <-  kept · x + (1 - kept) · x[other]        t  <-  λ t + (1 - λ) t[other],    λ the mean of kept

Mixup and CutMix differ in `kept` alone. Where both are on, a coin decides for each image. Who goes with whom is drawn
anew for every batch; an image may meet itself.
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
    blends: Sequence[MixMethod],
    generator: torch.Generator,
) -> tuple[Float[Tensor, "B C Y X"], Float[Tensor, "B K"]]:
    """Images and labels mixed; as they are where there is no way to."""
    if not blends:
        return values, targets
    b, _, y, x = values.shape
    which = random_integers(b, len(blends), generator)
    kept = torch.ones(b, 1, y, x, device=values.device)
    for number, blend in enumerate(blends):
        kept = torch.where((which == number)[:, None, None, None], blend(b, y, x, generator), kept)
    other = torch.rand(b, generator=generator, device=generator.device).argsort()
    share = kept.mean((1, 2, 3))[:, None]
    kept = kept.to(values.dtype)
    return torch.lerp(values[other], values, kept), share * targets + (1 - share) * targets[other]
