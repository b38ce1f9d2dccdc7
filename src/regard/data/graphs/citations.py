"""Cora and Citeseer: papers with their words and citations; the class of a paper is predicted.

    Citations(dataset="cora")      one graph, the public split: 20 papers of each class to train on, 500 to validate,
                                   1,000 to test

Words of a paper are divided by their number. The target of a node that is not in a split is -100.

Sen et al. 2008; the split: Yang, Cohen, Salakhutdinov: Revisiting Semi-Supervised Learning with Graph Embeddings. ICML
2016. arXiv:1603.08861
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from regard.core.shapes import Tensor
from regard.data.data_dir import find_dataset
from regard.data.graphs.graph_dataset import IGNORED, GraphDataset
from regard.modalities.graph import Graph


@dataclass(frozen=True)
class Citations(GraphDataset):
    """Settings of the dataset."""

    dataset: Literal["cora", "citeseer"] = "cora"
    path: str = "graphs_citation"
    batch_size: int = 1
    max_nodes: int | None = None  # only the first so many papers

    quick_settings = {"max_nodes": 200}  # noqa: RUF012

    def title(self) -> str:
        return self.dataset

    @property
    def input_dim(self) -> int:
        return int(self._read()["shape"][1])

    def labels(self) -> list[str]:
        return [f"class {n}" for n in range(int(self._read()["labels"].max()) + 1)]

    def _read(self) -> dict[str, Any]:
        with np.load(find_dataset(self.path) / f"{self.dataset}.npz") as file:
            return {name: file[name] for name in file.files}

    def graphs(self, split: str) -> tuple[list[Graph], Tensor]:
        data = self._read()
        words = torch.zeros(*map(int, data["shape"]))
        words[data["feat_row"].astype(np.int64), data["feat_col"].astype(np.int64)] = 1
        words = words / words.sum(1, keepdim=True).clamp(min=1)
        rows = torch.from_numpy(data[f"{split}_idx"].astype(np.int64))
        labels = torch.from_numpy(data["labels"].astype(np.int64))
        targets = torch.full((len(labels),), IGNORED)
        targets[rows] = labels[rows]
        edges, most = torch.from_numpy(data["edges"].astype(np.int64)), self.max_nodes or len(words)
        edges = edges[(edges < most).all(1)]
        return [Graph.make(min(most, len(words)), edges, features=words[:most])], targets[None, :most]
