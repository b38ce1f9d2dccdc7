"""Node classification: the class of some nodes of a graph, given those of others.

    objective    cross-entropy of the labelled nodes, summed
    metric       accuracy of the nodes of a split; loss (nats per node)
    decoding     none

Every split is the same graph with the labels of other nodes.

Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks. ICLR 2017. arXiv:1609.02907
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.data.graphs.graph_dataset import IGNORED
from regard.metrics.base import ACCURACY, loss_metric
from regard.tasks.graphs import graph_classification
from regard.tasks.graphs.graph_classification import GraphClassification


@dataclass(frozen=True)
class Config(graph_classification.Config):
    """Settings of training."""

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> NodeClassification:
        return NodeClassification(self, data, seed)


class NodeClassification(GraphClassification):
    """Train and evaluate a model that predicts a class for every node."""

    metrics = (ACCURACY, loss_metric("nats per node"))
    name, head, split_size, unit = "node_classification", "nodes", "nodes", "nodes"

    def count(self, batch: Any) -> int:
        return int(self.dataset("train").count(batch))

    def objective(self, out: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        return F.cross_entropy(out.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of the nodes of a split: loss, accuracy, nodes."""
        model.eval()
        device, sums = next(model.parameters()).device, {"loss": 0.0, "accuracy": 0.0, "nodes": 0}
        for some in self.dataset(split).eval_batches(1):
            batch = some.to(device)
            for name, value in self.measure(model, batch).items():
                sums[name] += float(value)
            sums["nodes"] += self.count(batch)
        return {name: value / sums["nodes"] for name, value in sums.items()} | {"nodes": sums["nodes"]}
