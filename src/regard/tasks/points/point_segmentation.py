"""Segmentation of point clouds: the class of every point.

    objective    cross-entropy of every point: its mean in each cloud, summed over the clouds
    metric       mIoU, point accuracy, mean accuracy, loss (nats per point)
    decoding     none; a cloud of more points than the model reads is divided by chance, each part with the whole shape
    predict      `PointSegmenter`: point clouds in, a label for every point out

Qi, Su, Mo, Guibas: PointNet. CVPR 2017. arXiv:1612.00593; Zhao et al.: Point Transformer. ICCV 2021. arXiv:2012.09164
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.metrics.base import loss_metric
from regard.metrics.mean_iou import POINT_SEGMENTATION_METRICS, MeanIoU
from regard.modalities.point_cloud import PointCloud
from regard.modalities.point_labels import PointLabels
from regard.tasks.base import call_with_state
from regard.tasks.points.point_base import BATCH_POINTS, PointPredictor, PointTask, PointTaskConfig

if TYPE_CHECKING:
    from regard.data.points.point_batch import PointBatch


@dataclass(frozen=True)
class Config(PointTaskConfig):
    """Settings of training."""

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> PointSegmentation:
        """Return the task on these data, whose clouds have a label for every point."""
        return PointSegmentation(self, data, seed)


class PointSegmentation(PointTask):
    """Train and evaluate a model with logits for every point."""

    metrics = (*POINT_SEGMENTATION_METRICS, loss_metric("nats per point"))
    name = "point_segmentation"

    def fit(self, config: Any) -> Any:
        if not hasattr(config, "head"):
            raise BadInput(
                f"{type(config).__module__.split('.')[-1]} gives no labels of points; use point_transformer."
            )
        return replace(super().fit(config), head="points")

    def loss(
        self, model: nn.Module, batch: PointBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        seen = self.augmented(batch, rng)
        logits, pass_state = call_with_state(model, seen.points)
        total = self._loss(logits, seen, self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return mIoU, accuracies and loss on a split, each cloud with its first `points` points."""
        part: Any = self.dataset(split)
        model.eval()
        device, scores, total = next(model.parameters()).device, MeanIoU(len(self.labels)), 0.0
        for batch in part.eval_batches(max(1, BATCH_POINTS // self.config.points)):
            seen = self.shown(batch.to(device))
            logits = model(seen.points).float()
            total += float(self._loss(logits, seen))
            scores.update(logits.argmax(-1), seen.labels)
        found = scores.compute()
        found["point_accuracy"] = found.pop("pixel_accuracy")
        return found | {"loss": total / len(part), self.split_size: len(part)}

    def _loss(self, logits: Float[Tensor, "B N K"], batch: PointBatch, smoothing: float = 0.0) -> Float[Tensor, ""]:
        if batch.labels.ndim != 2:
            raise BadInput(f"{self.data.title()} has labels of clouds, not of points; use point_classification.")
        losses = F.cross_entropy(logits.float().mT, batch.labels, reduction="none", label_smoothing=smoothing)
        return losses.mean(1).sum()


class PointSegmenter(PointPredictor):
    """Point clouds in, a label for every point out.

        segment = PointSegmenter(model, ["floor", "cube"], PointPreprocess(2048))
        segment("scene.ply")                       PointLabels: labels and scores of the points in their order, names
        segment(["scene.ply", array, tensor])      a list: paths, bytes of files, arrays and tensors N 3

    Other clouds of a batch do not change an output. Points that repeat another get its label.
    """

    outputs = PointLabels

    def predict(self, batch: list[Any], options: Any) -> list[PointLabels]:
        return [self._segment(PointCloud.read(cloud)) for cloud in batch]

    @torch.no_grad()
    def _segment(self, cloud: PointCloud) -> PointLabels:
        labels = torch.zeros(len(cloud), dtype=torch.long)
        scores, weight = torch.zeros(len(cloud)), next(self.model.parameters())
        parts = list(self.preprocess.parts(cloud))
        rows = max(1, BATCH_POINTS // self.preprocess.max_points)
        for begin in range(0, len(parts), rows):
            check_cancelled()
            some = parts[begin : begin + rows]
            logits = self.model(torch.stack([points for _, points in some]).to(weight))
            best = logits.float().softmax(-1).cpu().max(-1)
            for (index, _), score, label in zip(some, *best, strict=True):
                labels[index], scores[index] = label, score.clamp(max=1)
        return PointLabels(labels[cloud.given], scores[cloud.given], tuple(self.labels))
