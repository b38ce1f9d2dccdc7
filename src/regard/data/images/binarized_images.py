"""Images whose pixels are 0 or 255, drawn once: a pixel is 255 with the probability of its intensity.

    BinarizedImages()          MNIST: 50,000 images to train on, 10,000 for validation, 10,000 for test

The bits of a split depend on `seed` alone, so every epoch and every evaluation sees the same ones. Published numbers
of density models on MNIST use one such draw that Salakhutdinov and Murray made. Theirs is a file that we do not have:
ours has the same distribution and other bits.

Salakhutdinov, Murray: On the Quantitative Analysis of Deep Belief Networks. ICML 2008
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import UInt8

from regard.core.shapes import Tensor
from regard.data.batching import mix_seed
from regard.data.images.image_dataset import SPLITS, ImageDataset, ImageSplit


@dataclass(frozen=True)
class BinarizedImages(ImageDataset):
    """Settings of the dataset."""

    path: str = "mnist"
    batch_size: int = 100
    val_fraction: float = 1 / 6

    def load(self, split: str) -> ImageSplit:
        loaded = super().load(split)
        loaded.pixels = binarize(loaded.pixels, mix_seed(self.seed, SPLITS.index(self.split(split))))
        return loaded


def binarize(pixels: UInt8[Tensor, "N C Y X"], seed: int) -> UInt8[Tensor, "N C Y X"]:
    """Return 255 with probability pixels / 255, else 0."""
    drawn = torch.rand(pixels.shape, generator=torch.Generator().manual_seed(seed))
    return (drawn * 255 < pixels).byte() * 255
