"""Graph regression: a number for a graph, such as the solubility of a molecule.

    objective    squared error of the number, shifted and scaled by the training part, summed over the graphs
    metric       RMSE and MAE, in the unit of the data
    decoding     none

Wu et al.: MoleculeNet: A Benchmark for Molecular Machine Learning. 2018. arXiv:1703.00564 (RMSE of ESOL)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.metrics.base import Metric, loss_metric
from regard.tasks.graphs import graph_classification
from regard.tasks.graphs.graph_classification import GraphClassification


@dataclass(frozen=True)
class Config(graph_classification.Config):
    """Settings of training."""

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> GraphRegression:
        return GraphRegression(self, data, seed)


class GraphRegression(GraphClassification):
    """Train and evaluate a model that predicts a number for every graph."""

    metrics = (
        Metric("rms_error", "RMSE", higher_is_better=False, digits=3),
        Metric("mae", "MAE", higher_is_better=False, digits=3),
        loss_metric("per graph"),
    )
    name = "graph_regression"
    num_outputs = 1

    def __init__(self, config: Config, data: Any, seed: int = 0) -> None:
        super().__init__(config, data, seed)
        targets = self.dataset("train").targets.double()
        self.mean, self.std = float(targets.mean()), float(targets.std())

    def objective(self, out: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        return ((out[:, 0] - (targets - self.mean) / self.std) ** 2).sum()

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        out, _ = self.outputs(model, batch)
        error = out[:, 0] * self.std + self.mean - batch.targets
        return {"loss": self.objective(out, batch.targets), "rms_error": (error**2).sum(), "mae": error.abs().sum()}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        found = super().evaluate(model, split, effort)
        return found | {"rms_error": math.sqrt(found["rms_error"])}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"mean": self.mean, "std": self.std}
