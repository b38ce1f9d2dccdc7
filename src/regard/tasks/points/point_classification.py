"""Point cloud classification: which class a cloud of points belongs to.

    objective    cross-entropy of the label, summed over the clouds
    metric       accuracy; loss (nats per cloud)
    decoding     none
    predict      `PointClassifier`: point clouds in, labels with their probabilities out

A batch gets a random part of its points, is put around its mean with the farthest point at distance 1, turned,
stretched and moved by noise, all on its device with the run's own generator. In evaluation the first points are taken.

Qi, Su, Mo, Guibas: PointNet. CVPR 2017. arXiv:1612.00593 (the protocol)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.metrics.base import ACCURACY, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.point_cloud import PointCloud, PointPreprocess, normalize_points
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.data.points.point_batch import PointBatch, PointDataset

BATCH_POINTS = 2**15  # points of a batch of the classifier, padding included


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    points: int = 1024  # of a cloud that the model sees
    rotation: Literal["none", "vertical", "any"] = "none"  # "vertical": around the z axis
    stretch: float = field(0.0, low=0, below=1)  # each axis by 1 - stretch to 1 + stretch
    noise: float = field(0.0, low=0, high=1)  # standard deviation; the cloud has radius 1
    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> PointClassification:
        """Return the task on these data."""
        return PointClassification(self, data, seed)


class PointClassification(SplitTask[Any]):
    """Train and evaluate a classifier of point clouds."""

    metrics = (ACCURACY, loss_metric("nats per cloud"))
    split_size, unit, name = "clouds", "clouds", "point_classification"

    def __init__(self, config: Config, data: PointDataset, seed: int = 0) -> None:
        super().__init__(data, seed)
        validate(config)
        self.config, self.labels = config, data.labels()

    def fit(self, config: Any) -> Any:
        return replace(config, num_classes=len(self.labels))

    def loss(
        self, model: nn.Module, batch: PointBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, self.augmented(batch.points, rng))
        total = F.cross_entropy(
            logits.float(), batch.labels, reduction="sum", label_smoothing=self.config.label_smoothing
        )
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def augmented(self, points: Float[Tensor, "B N 3"], rng: torch.Generator | None = None) -> Float[Tensor, "B P 3"]:
        """Return a training batch as the model sees it; `rng` is a generator on the batch's device."""
        rng, c = torch.Generator(points.device) if rng is None else rng, self.config

        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=rng, device=points.device)

        chosen = uniform(points.shape[1]).argsort()[: c.points]  # the points of every cloud are in random order
        points = normalize_points(points[:, chosen])
        if c.rotation != "none":
            points = points @ random_rotations(uniform, len(points), c.rotation)
        if c.stretch:
            points = points * (1 + c.stretch * (2 * uniform(len(points), 1, 3) - 1))
        if c.noise:
            noise = torch.randn(points.shape, generator=rng, device=points.device)
            points = points + c.noise * noise
        return points

    def measure(self, model: nn.Module, batch: PointBatch) -> dict[str, Tensor]:
        logits = model(normalize_points(batch.points[:, : self.config.points])).float()
        nll = F.cross_entropy(logits, batch.labels, reduction="sum")
        return {"loss": nll, "accuracy": (logits.argmax(-1) == batch.labels).sum()}

    def describe(self) -> dict[str, Any]:
        shown = to_dict(PointPreprocess(self.config.points))
        return {"name": self.name, "labels": self.labels, "preprocess": shown}

    def card(self) -> str:
        train: Any = self.dataset("train")
        return f"{self.data.title()}, {len(train):,} clouds of {self.config.points} points, {len(self.labels)} labels"


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


# -- the predictor -----------------------------------------------------------------------------------------------------


class PointClassifier(Predictor):
    """Point clouds in, labels with their probabilities out.

        classify = PointClassifier(model, ["cone", "cube"], PointPreprocess(1024))
        classify("cone.ply")                       Classes("cone", 0.98, {"cone": 0.98, "cube": 0.02})
        classify(["cone.ply", array, tensor])      a list: paths, bytes of files, arrays and tensors N 3

    Other clouds of a batch do not change an output. A cloud that cannot be read is an error that names it.
    """

    inputs = {"points": PointCloud}  # noqa: RUF012
    outputs = Classes

    def __init__(
        self, model: nn.Module, labels: Sequence[str], preprocess: PointPreprocess | Mapping[str, Any]
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(PointPreprocess, preprocess)
        classes = getattr(getattr(model, "config", None), "num_classes", None)
        if classes is not None and len(labels) != classes:
            raise BadInput(f"The model has {classes:,} classes, got {len(labels):,} labels; give one for each class.")
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found: list[Classes] = []
        rows = max(1, BATCH_POINTS // self.preprocess.max_points)
        weight = next(self.model.parameters())
        for begin in range(0, len(batch), rows):
            check_cancelled()
            points, lengths = self.preprocess.batch(batch[begin : begin + rows])
            logits = self.model(points.to(weight), lengths.to(weight.device))
            found += [Classes.rank(self.labels, row) for row in logits.float().softmax(-1).tolist()]
        return found
