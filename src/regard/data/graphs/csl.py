"""Circular skip links: 150 graphs of 41 nodes, in ten classes that message passing cannot tell apart.

    CSL(fold=0)      a ring of 41 nodes whose nodes are also linked to those 2, 3, 4, 5, 6, 9, 11, 12, 13 or 16 steps on

Every node has four neighbours, so all of them look alike; what differs is where the links lead. Five folds by class, of
which one is for test, one for validation.

Murphy, Srinivasan, Rao, Ribeiro: Relational Pooling for Graph Representations. ICML 2019. arXiv:1903.02541
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from regard.core.config import field
from regard.core.shapes import Tensor
from regard.data.data_dir import find_dataset
from regard.data.graphs.graph_dataset import GraphDataset, fold_rows, stratified_folds
from regard.modalities.graph import Graph

FOLDS = 5


@dataclass(frozen=True)
class CSL(GraphDataset):
    """Settings of the dataset."""

    path: str = "graphs_csl"
    fold: int = field(0, low=0, below=FOLDS)

    def labels(self) -> list[str]:
        return [f"class {n}" for n in range(10)]

    def graphs(self, split: str) -> tuple[list[Graph], Tensor]:
        with np.load(find_dataset(self.path) / "csl.npz") as file:
            adjacency, labels = torch.from_numpy(file["adj"]), torch.from_numpy(file["labels"]).long()
        rows = fold_rows(stratified_folds(labels, FOLDS, self.seed), self.fold, split, FOLDS)
        return [Graph.make(len(each), each.nonzero()) for each in adjacency[rows]], labels[rows]
