"""Point cloud classification: which class a cloud of points belongs to.

    objective    cross-entropy of the label, summed over the clouds
    metric       accuracy; loss (nats per cloud)
    decoding     none
    predict      `PointClassifier`: point clouds in, labels with their probabilities out

Qi, Su, Mo, Guibas: PointNet. CVPR 2017. arXiv:1612.00593 (the protocol)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.shapes import Float, Tensor
from regard.metrics.base import ACCURACY, loss_metric
from regard.modalities.classes import Classes
from regard.tasks.base import call_with_state
from regard.tasks.points.point_base import BATCH_POINTS, PointPredictor, PointTask, PointTaskConfig

if TYPE_CHECKING:
    from regard.data.points.point_batch import PointBatch


@dataclass(frozen=True)
class Config(PointTaskConfig):
    """Settings of training."""

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> PointClassification:
        """Return the task on these data."""
        return PointClassification(self, data, seed)


class PointClassification(PointTask):
    """Train and evaluate a classifier of point clouds."""

    metrics = (ACCURACY, loss_metric("nats per cloud"))
    name = "point_classification"

    def loss(
        self, model: nn.Module, batch: PointBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        seen = self.augmented(batch, rng)
        logits, pass_state = call_with_state(model, seen.points)
        total = F.cross_entropy(
            logits.float(), seen.labels, reduction="sum", label_smoothing=self.config.label_smoothing
        )
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def measure(self, model: nn.Module, batch: PointBatch) -> dict[str, Tensor]:
        seen = self.shown(batch)
        logits = model(seen.points).float()
        nll = F.cross_entropy(logits, seen.labels, reduction="sum")
        return {"loss": nll, "accuracy": (logits.argmax(-1) == seen.labels).sum()}


class PointClassifier(PointPredictor):
    """Point clouds in, labels with their probabilities out.

        classify = PointClassifier(model, ["cone", "cube"], PointPreprocess(1024))
        classify("cone.ply")                       Classes("cone", 0.98, {"cone": 0.98, "cube": 0.02})
        classify(["cone.ply", array, tensor])      a list: paths, bytes of files, arrays and tensors N 3

    Other clouds of a batch do not change an output. A cloud that cannot be read is an error that names it.
    """

    outputs = Classes

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
