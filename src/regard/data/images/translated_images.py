"""Translated and cluttered images: a small image anywhere on a large black canvas, among pieces of other images.

    TranslatedImages("mnist")               Translated MNIST: a digit at a random place of 60 x 60 pixels
    TranslatedImages("mnist", clutter=4)    Cluttered Translated MNIST: with four pieces of 8 x 8 pixels of other digits

Where everything lies is computed from (seed, split, row), so every batch and every machine has the same pictures. In
training each epoch has new ones; those of validation and test stay. A batch is sent to the device as numbers, and its
canvases are filled there.

Mnih, Heess, Graves, Kavukcuoglu: Recurrent Models of Visual Attention. NeurIPS 2014. arXiv:1406.6247, section 4.1
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.batching import OffsetBatches, mix_seed
from regard.data.images.image_dataset import SPLITS, ImageDataset, ImageSplit
from regard.data.images.image_shards import ImageBatch
from regard.data.shuffle import random_bits


@dataclass(frozen=True)
class TranslatedImages(ImageDataset):
    """Settings of the dataset: those of the small images, and what is made of them."""

    path: str = "mnist"
    canvas_size: int = field(60, low=1)  # pixels of a side of the canvas
    clutter: int = field(0, low=0)  # pieces of other images on each canvas
    clutter_size: int = field(8, low=1)  # pixels of a side of a piece

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repeats > 1:
            raise BadInput(f"each image has one place in its batch; leave data.repeats at 1, got {self.repeats}")
        small = self.image_size or (self.known.size if self.known else 224)
        if self.canvas_size < small or (self.clutter and self.clutter_size > small):
            raise BadInput(
                f"images of {small} x {small} do not fit: data.canvas_size must be at least {small}, got "
                f"{self.canvas_size}, and data.clutter_size at most {small}, got {self.clutter_size}"
            )

    @property
    def pixels(self) -> int:
        return self.canvas_size

    def load(self, split: str) -> TranslatedSplit:
        small = ImageDataset(**{name: getattr(self, name) for name in ImageDataset.__dataclass_fields__})
        return TranslatedSplit(self, small.load(split), SPLITS.index(self.split(split)))

    def quick(self) -> TranslatedImages:
        return replace(self, batch_size=min(self.batch_size, 4), limit=48)


class Canvases(NamedTuple):
    """A batch as numbers; the canvases are filled by `to`."""

    indices: Int[Tensor, " B"]  # of the small images
    places: Int[Tensor, "B 2"]  # top and left of the image on the canvas
    pieces: Int[Tensor, "B P 5"]  # of each piece: its image, top and left in it, top and left on the canvas
    split: TranslatedSplit

    def to(self, device: torch.device | str) -> ImageBatch:
        """Fill the canvases on the device."""
        images = self.split.small.on(device)
        indices, places, pieces = (x.to(device, non_blocking=True) for x in self[:3])
        settings = self.split.settings
        canvas = images.pixels.new_zeros(len(indices), images.pixels.shape[1], *2 * (settings.canvas_size,))
        paste(canvas, images.pixels[indices], places)
        for piece in pieces.unbind(1):
            rows, columns = (piece[:, i, None] + torch.arange(settings.clutter_size, device=device) for i in (1, 2))
            cut = images.pixels[piece[:, 0, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
            paste(canvas, cut, piece[:, 3:])
        return ImageBatch(canvas, images.labels[indices])

    def pin(self) -> Canvases:
        return Canvases(self.indices.pin_memory(), self.places.pin_memory(), self.pieces.pin_memory(), self.split)

    def rows(self, n: int) -> Canvases:
        return Canvases(self.indices[:n], self.places[:n], self.pieces[:n], self.split)


def paste(canvas: UInt8[Tensor, "B C Y X"], images: UInt8[Tensor, "B C y x"], places: Int[Tensor, "B 2"]) -> None:
    """Draw each image onto its canvas at (top, left), in place; where both are drawn, the brighter stays."""
    batch = torch.arange(len(canvas), device=canvas.device)[:, None, None]
    rows = places[:, 0, None, None] + torch.arange(images.shape[-2], device=canvas.device)[:, None]
    columns = places[:, 1, None, None] + torch.arange(images.shape[-1], device=canvas.device)
    canvas[batch, :, rows, columns] = torch.maximum(canvas[batch, :, rows, columns], images.movedim(1, -1))


class TranslatedSplit(ImageSplit):
    """The canvases of a split. Row epoch · images + i is the i-th image, placed anew."""

    settings: TranslatedImages

    def __init__(self, settings: TranslatedImages, small: ImageSplit, number: int) -> None:
        super().__init__(settings, small.pixels, small.labels, small.skipped)
        self.small, self.key = small, mix_seed(settings.seed, number)

    def order(self, seed: int, epoch: int) -> Any:
        return OffsetBatches(super().order(seed, epoch), epoch * len(self))

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> Any:
        return self.collate(rows, seed)

    def collate(self, rows: Int[Tensor, " B"], seed: int = 0) -> Any:
        s, size = self.settings, self.pixels.shape[-1]
        key = mix_seed(self.key, seed)
        free, free_piece = s.canvas_size - size + 1, s.canvas_size - s.clutter_size + 1
        cut = size - s.clutter_size + 1
        below = [free, free, *[len(self), cut, cut, free_piece, free_piece] * s.clutter]
        numbers = rows.numpy()[:, None] * len(below) + np.arange(len(below))
        found = torch.from_numpy((random_bits(key, numbers) % np.array(below, np.uint64)).astype(np.int64))
        pieces = found[:, 2:].unflatten(1, (s.clutter, 5))
        return Canvases(rows % len(self), found[:, :2], pieces, self)
