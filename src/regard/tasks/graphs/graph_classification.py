"""Graph classification: which class a graph belongs to.

    objective    cross-entropy of the label, summed over the graphs; Laplacian positions get random signs
    metric       accuracy; loss (nats per graph)
    decoding     none
    predict      `GraphClassifier`: graphs in, labels with their probabilities out

Dwivedi, Joshi, Luu, Laurent, Bengio, Bresson: Benchmarking Graph Neural Networks. JMLR 2023. arXiv:2003.00982
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.metrics.base import ACCURACY, Metric, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.graph import Graph
from regard.modalities.graph_preprocess import GraphPreprocess
from regard.positions.graph.laplacian import flip_signs
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor, check_label_count, config_value

if TYPE_CHECKING:
    from regard.data.graphs.graph_dataset import GraphBatch, GraphDataset

BATCH_GRAPHS = 16  # of the classifier


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    flip_signs: bool = field(True, help="draw signs of Laplacian positions for every batch")

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> GraphClassification:
        """Return the task on these data."""
        return GraphClassification(self, data, seed)


class GraphClassification(SplitTask[Any]):
    """Train and evaluate a classifier of graphs."""

    metrics: tuple[Metric, ...] = (ACCURACY, loss_metric("nats per graph"))
    split_size, unit, name = "graphs", "graphs", "graph_classification"
    head = "graph"

    def __init__(self, config: Config, data: GraphDataset, seed: int = 0) -> None:
        super().__init__(data, seed)
        validate(config)
        self.config, self.labels = config, data.labels()

    @property
    def num_outputs(self) -> int:
        """Numbers that the model predicts for a graph or a node."""
        return len(self.labels)

    def fit(self, config: Any) -> Any:
        sizes = {"input_dim": self.data.input_dim, "position_dim": self.data.position_dim, "head": self.head}
        sizes |= {"num_outputs": self.num_outputs, "edge_types": self.data.edge_types}
        known = {each.name for each in fields(config)}
        return replace(config, **{name: value for name, value in sizes.items() if name in known})

    def outputs(self, model: nn.Module, batch: GraphBatch, rng: torch.Generator | None = None) -> tuple[Tensor, Any]:
        """Return what the model predicts for a batch, in training with random signs, and its pass state."""
        positions: Tensor | None = batch.positions if batch.positions.shape[2] else None
        if positions is not None and model.training and self.config.flip_signs and self.data.positions == "laplacian":
            positions = flip_signs(positions, rng)
        found, pass_state = call_with_state(model, batch.nodes, batch.edges, positions, batch.lengths)
        return found.float(), pass_state

    def loss(
        self, model: nn.Module, batch: GraphBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        out, pass_state = self.outputs(model, batch, rng)
        total = self.objective(out, batch.targets)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def objective(self, out: Tensor, targets: Tensor) -> Float[Tensor, ""]:
        """Return the loss of a batch, summed."""
        return F.cross_entropy(out, targets, reduction="sum")

    def measure(self, model: nn.Module, batch: GraphBatch) -> dict[str, Tensor]:
        out, _ = self.outputs(model, batch)
        return {"loss": self.objective(out, batch.targets), "accuracy": (out.argmax(-1) == batch.targets).sum()}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "labels": self.labels, "preprocess": to_dict(self.data.preprocess())}

    def card(self) -> str:
        train: Any = self.dataset("train")
        return f"{self.data.title()}, {len(train):,} graphs to train on, positions: {self.data.positions}"


# -- the predictor -----------------------------------------------------------------------------------------------------


class GraphClassifier(Predictor):
    """Graphs in, labels with their probabilities out.

        classify = GraphClassifier(model, ["ring", "tree"], GraphPreprocess(1, "laplacian", 8))
        classify("friends.graphml")                             Classes("ring", 0.98, {"ring": 0.98, "tree": 0.02})
        classify({"nodes": 3, "edges": [[0, 1], [1, 2]]})       the same object as in a request

    Other graphs of a batch do not change an output. A graph that cannot be read is an error that names it.
    """

    inputs = {"graph": Graph}  # noqa: RUF012
    outputs = Classes

    def __init__(
        self, model: nn.Module, labels: Sequence[str], preprocess: GraphPreprocess | Mapping[str, Any]
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(GraphPreprocess, preprocess)
        check_label_count(labels, config_value(model, "num_outputs"))
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found: list[Classes] = []
        device = next(self.model.parameters()).device
        for begin in range(0, len(batch), BATCH_GRAPHS):
            check_cancelled()
            read = self.preprocess.batch(batch[begin : begin + BATCH_GRAPHS])
            nodes, edges, positions, lengths = (part.to(device) for part in read)
            logits = self.model(nodes, edges, positions if positions.shape[2] else None, lengths)
            found += [Classes.rank(self.labels, row) for row in logits.float().softmax(-1).tolist()]
        return found
