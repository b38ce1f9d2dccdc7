"""Graphs with targets: a batch padded to its largest graph, and the base of the datasets.

A subclass writes `graphs(split)`: graphs and one target for each (a class, a number, or a class for every node).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from regard.core.config import field
from regard.core.shapes import Float, Int, Shaped, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.modalities.graph import Graph
from regard.modalities.graph_preprocess import GraphPreprocess

IGNORED = -100  # the target of a node that is not in a split


@dataclass(frozen=True, eq=False)
class GraphBatch(TensorBatch):
    """Graphs padded to the largest of the batch, and their targets."""

    nodes: Float[Tensor, "B N F"]
    edges: Int[Tensor, "B N N"]
    positions: Float[Tensor, "B N P"]
    lengths: Int[Tensor, " B"]
    targets: Shaped[Tensor, "B *any"]


@dataclass(frozen=True)
class GraphDataset(Dataset):
    """Settings that all datasets of graphs have."""

    positions: Literal["none", "laplacian", "random_walk"] = "none"
    position_dim: int = field(0, low=0)
    batch_size: int = 32
    limit: int | None = None  # graphs of a split
    seed: int = field(0, low=0, below=2**31)

    quick_settings = {"batch_size": 8, "limit": 16}  # noqa: RUF012

    def __post_init__(self) -> None:
        validate(self, "data.")

    @property
    def input_dim(self) -> int:
        """Numbers of a node."""
        return 1

    @property
    def edge_types(self) -> int:
        """Kinds of edges."""
        return 1

    def preprocess(self) -> GraphPreprocess:
        """Return how a model is shown these graphs."""
        return GraphPreprocess(self.input_dim, self.positions, self.position_dim)

    def labels(self) -> list[str]:
        """Return the names of the classes; empty for numbers."""
        return []

    def graphs(self, split: str) -> tuple[Sequence[Graph], Tensor]:
        """Return the graphs of a split and their targets."""
        raise NotImplementedError

    def load(self, split: str) -> GraphSplit:
        graphs, targets = self.graphs(self.split(split))
        return GraphSplit(graphs[: self.limit], targets[: self.limit], self.preprocess(), self.batch_size)


class GraphSplit(DatasetSplit[GraphBatch]):
    """The graphs of one split with their positions, computed once."""

    def __init__(self, graphs: Sequence[Graph], targets: Tensor, preprocess: GraphPreprocess, batch_size: int) -> None:
        self.graphs, self.targets, self.preprocess, self.batch_size = graphs, targets, preprocess, batch_size
        self.positions = [preprocess.place(graph) for graph in graphs]
        self._batch: GraphBatch | None = None  # of a dataset that is one graph

    def __len__(self) -> int:
        return len(self.graphs)

    def collate(self, rows: Int[Tensor, " B"]) -> GraphBatch:
        numbers = rows.tolist()
        if self._batch is not None and len(numbers) == 1:
            return self._batch
        made = self.preprocess.batch([self.graphs[n] for n in numbers], [self.positions[n] for n in numbers])
        targets = self.targets[rows]
        batch = GraphBatch(*made, targets[:, : made.nodes.shape[1]] if targets.ndim > 1 else targets)  # one a node
        if len(self) == len(numbers) == 1:
            self._batch = batch
        return batch

    def count(self, batch: GraphBatch) -> int:
        """Return the targets: one of each graph, or those of its nodes that are not `IGNORED`."""
        return int((batch.targets != IGNORED).sum()) if batch.targets.ndim > 1 else len(batch.targets)

    def contents(self) -> Iterable[Tensor]:
        yield self.targets
        for graph, positions in zip(self.graphs, self.positions, strict=True):
            yield graph.edges
            yield positions.abs()
            yield graph.features if graph.features is not None else torch.zeros(0)


def stratified_folds(labels: Int[Tensor, " n"], folds: int, seed: int) -> Int[Tensor, " n"]:
    """Return a fold for every graph, each with the same share of every class."""
    found, rng = torch.zeros_like(labels), torch.Generator().manual_seed(seed)
    for label in labels.unique():
        rows = (labels == label).nonzero()[:, 0]
        found[rows[torch.randperm(len(rows), generator=rng)]] = torch.arange(len(rows)) % folds
    return found


def fold_rows(folds: Int[Tensor, " n"], fold: int, split: str, count: int) -> Int[Tensor, " m"]:
    """Return the graphs of a split: fold `fold` is for test, the next one for validation, the others to train on."""
    val = (fold + 1) % count
    keep = {"test": folds == fold, "val": folds == val, "train": (folds != fold) & (folds != val)}[split]
    return keep.nonzero()[:, 0]
