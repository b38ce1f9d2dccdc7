"""What the tasks over point clouds share: settings of augmentation, and the way from a batch to what the model reads.

A training batch gets a random part of its points, is put around its mean with the farthest point at distance 1, turned,
stretched and moved by noise, all on its device with the run's own generator. In evaluation the first points are taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from regard.core.config import field, from_dict, to_dict
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.modalities.point_cloud import PointCloud, PointPreprocess, normalize_points
from regard.tasks.base import SplitTask
from regard.tasks.predictor import Predictor, check_label_count, config_value

if TYPE_CHECKING:
    from regard.data.points.point_batch import PointBatch, PointDataset

BATCH_POINTS = 2**15  # points of a batch of a predictor, padding included


@dataclass(frozen=True)
class PointTaskConfig:
    """Settings of training."""

    points: int = 1024  # of a cloud that the model sees
    rotation: Literal["none", "vertical", "any"] = "none"  # "vertical": around the z axis
    stretch: float = field(0.0, low=0, below=1)  # each axis by 1 - stretch to 1 + stretch
    noise: float = field(0.0, low=0, high=1)  # standard deviation; the cloud has radius 1
    label_smoothing: float = field(0.0, low=0, below=1)


class PointTask(SplitTask[Any]):
    """A task over labelled clouds; a subclass writes `loss`, and `measure` or `evaluate`."""

    split_size, unit = "clouds", "clouds"

    def __init__(self, config: Any, data: PointDataset, seed: int = 0) -> None:
        super().__init__(data, seed)
        validate(config)
        self.config, self.labels = config, data.labels()

    def fit(self, config: Any) -> Any:
        return replace(config, num_classes=len(self.labels))

    def augmented(self, batch: PointBatch, rng: torch.Generator | None = None) -> PointBatch:
        """Return a training batch as the model sees it; `rng` is a generator on the batch's device."""
        device, c = batch.points.device, self.config
        rng = torch.Generator(device) if rng is None else rng

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=rng, device=device)

        chosen = uniform(batch.points.shape[1]).argsort()[: c.points]  # the points of every cloud are in random order
        batch = batch.take_points(chosen)
        points = normalize_points(batch.points)
        if c.rotation != "none":
            points = points @ random_rotations(uniform, len(points), c.rotation)
        if c.stretch:
            points = points * (1 + c.stretch * (2 * uniform(len(points), 1, 3) - 1))
        if c.noise:
            noise = torch.randn(points.shape, generator=rng, device=device)
            points = points + c.noise * noise
        return replace(batch, points=points)

    def shown(self, batch: PointBatch) -> PointBatch:
        """Return a batch of an evaluation as the model sees it."""
        batch = batch.take_points(slice(self.config.points))
        return replace(batch, points=normalize_points(batch.points))

    def describe(self) -> dict[str, Any]:
        shown = to_dict(PointPreprocess(self.config.points))
        return {"name": self.name, "labels": self.labels, "preprocess": shown}

    def card(self) -> str:
        train: Any = self.dataset("train")
        return f"{self.data.title()}, {len(train):,} clouds of {self.config.points} points, {len(self.labels)} labels"


class PointPredictor(Predictor):
    """Point clouds in; a subclass says what comes out."""

    inputs = {"points": PointCloud}  # noqa: RUF012

    def __init__(
        self, model: nn.Module, labels: Sequence[str], preprocess: PointPreprocess | Mapping[str, Any]
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(PointPreprocess, preprocess)
        check_label_count(labels, config_value(model, "num_classes"))
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess


def random_rotations(uniform: Any, count: int, kind: str) -> Float[Tensor, "B 3 3"]:
    """Return rotation matrices: around the z axis ("vertical"), or of any orientation, all equally likely ("any")."""
    if kind == "vertical":
        angle = 2 * math.pi * uniform(count)
        c, s, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
        return torch.stack([c, -s, zero, s, c, zero, zero, zero, one], 1).unflatten(1, (3, 3))
    first, a, b = uniform(3, count)  # a uniform unit quaternion (Shoemake 1992)
    a, b = 2 * math.pi * a, 2 * math.pi * b
    near, far = (1 - first).sqrt(), first.sqrt()
    x, y, z, w = near * a.sin(), near * a.cos(), far * b.sin(), far * b.cos()
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)]
    rows += [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)]
    rows += [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
    return torch.stack(rows, 1).unflatten(1, (3, 3))
