"""Small scenes and models for tests of dense tasks: bright shapes on a dark ground."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from regard.data.base import Dataset, TensorSplit
from regard.data.images.scene_batch import Scene, SceneBatch, mask_boxes

LABELS = ["ground", "square", "disc"]
SIDE = 24


def scene(rng, side=SIDE, crowd=False):
    """A square and a disc on noise, with boxes, masks, class map and depth."""
    y, x = np.mgrid[:side, :side] + 0.5
    pixels = rng.integers(0, 60, (3, side, side)).astype(np.uint8)
    labels, masks = np.zeros((side, side), np.uint8), []
    for k in (1, 2):
        r = rng.uniform(3, 5)
        cy, cx = rng.uniform(r, side / 2 - 1), rng.uniform(r, side - r)
        cy += (k - 1) * side / 2
        inside = (abs(y - cy) < r) & (abs(x - cx) < r) if k == 1 else (y - cy) ** 2 + (x - cx) ** 2 < r**2
        pixels[k - 1, inside] = 220
        labels[inside] = k
        masks.append(inside)
    masks = np.stack(masks)
    depth = np.where(labels > 0, 1.0, 4.0 - 2 * y / side).astype(np.float32)
    crowds = np.array([crowd, False])
    return Scene(pixels, np.array([1, 2]), mask_boxes(masks), crowds, masks, labels, depth)


@dataclass(frozen=True)
class Shapes(Dataset):
    """Scenes from a seed."""

    image_size: int = SIDE
    batch_size: int = 8
    examples: int = 32
    mean = (0.1, 0.1, 0.1)
    std = (0.25, 0.25, 0.25)

    def labels(self):
        return LABELS

    def things(self):
        return LABELS[1:]

    def load(self, split):
        rng = np.random.default_rng(("train", "val", "test").index(split))
        return TensorSplit(SceneBatch.collate([scene(rng) for _ in range(self.examples)]), self.batch_size)


@dataclass(frozen=True)
class PixelConfig:
    num_outputs: int = 3
    channels: int = 3
    width: int = 8


class PixelModel(nn.Module):
    """Two convolutions."""

    Config = PixelConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(
            nn.Conv2d(config.channels, config.width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(config.width, config.num_outputs, 3, padding=1),
        )

    def forward(self, images):
        return self.layers(images)


class QueryOutput(NamedTuple):
    logits: torch.Tensor
    boxes: torch.Tensor
    masks: torch.Tensor | None


@dataclass(frozen=True)
class QueryConfig:
    num_classes: int = 3
    channels: int = 3
    queries: int = 5
    has_masks: bool = True


class QueryModel(nn.Module):
    """Queries read off a pooled grid; two "layers" that differ by a factor."""

    Config = QueryConfig

    def __init__(self, config):
        super().__init__()
        self.config, q, k = config, config.queries, config.num_classes
        self.logits, self.boxes = nn.Linear(config.channels * 36, q * (k + 1)), nn.Linear(config.channels * 36, q * 4)
        self.masks = nn.Conv2d(config.channels, q, 3, padding=1)

    def forward(self, images, sizes=None):
        values = nn.functional.adaptive_avg_pool2d(images, 6).flatten(1)
        logits = self.logits(values).unflatten(1, (self.config.queries, -1))
        boxes = self.boxes(values).unflatten(1, (self.config.queries, 4))
        masks = nn.functional.avg_pool2d(self.masks(images), 2) if self.config.has_masks else None
        return QueryOutput(torch.stack([logits / 2, logits]), torch.stack([boxes / 2, boxes]).sigmoid(), masks)
