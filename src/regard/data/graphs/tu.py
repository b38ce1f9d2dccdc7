"""Graph classification sets of the TU collection: MUTAG, PTC, PROTEINS, NCI1, ENZYMES, IMDB-BINARY.

    TU(dataset="mutag", fold=0)     one of ten folds for test, the next for validation
    TU(dataset="my/folder/PTC_MR")  a folder in the TU format: NAME_A.txt, NAME_graph_indicator.txt,
                                    NAME_graph_labels.txt, and NAME_node_labels.txt if nodes have labels

A node is its tag, one-hot; where all nodes have the same (IMDB-BINARY), its degree, one-hot up to 64.

Morris, Kriege, Bause, Kersting, Mutzel, Neumann: TUDataset. 2020. arXiv:2007.08663
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import one_hot

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.data.data_dir import find_dataset
from regard.data.graphs.graph_dataset import GraphDataset, fold_rows, stratified_folds
from regard.modalities.graph import Graph

FOLDS, MAX_DEGREE = 10, 64


@dataclass(frozen=True)
class TU(GraphDataset):
    """Settings of the dataset."""

    dataset: str = "mutag"
    path: str = "graphs_tu"
    fold: int = field(0, low=0, below=FOLDS)

    def title(self) -> str:
        return self.dataset

    @property
    def input_dim(self) -> int:
        return int(self._read()[0][0].features.shape[1])  # type: ignore[union-attr]

    def labels(self) -> list[str]:
        return [f"class {n}" for n in range(int(self._read()[1].max()) + 1)]

    def graphs(self, split: str) -> tuple[list[Graph], Tensor]:
        graphs, labels, folds = self._read()
        if folds is None:
            folds = stratified_folds(labels, FOLDS, self.seed)
        rows = fold_rows(folds, self.fold, split, FOLDS)
        return [graphs[n] for n in rows.tolist()], labels[rows]

    def _read(self) -> tuple[list[Graph], Tensor, Tensor | None]:
        folder = Path(self.dataset)
        if folder.is_dir():
            return (*read_tu_folder(folder.resolve()), None)
        return _read_packed(find_dataset(self.path) / f"{self.dataset}.npz")


@lru_cache(maxsize=2)
def _read_packed(path: Path) -> tuple[list[Graph], Tensor, Tensor]:
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in path.parent.glob("*.npz")))
        raise BadInput(f"there is no set '{path.stem}' in {path.parent}; there are {known}")
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name].astype(np.int64)) for name in file.files}
    edges = torch.stack([arrays["edge_src"], arrays["edge_dst"]], 1)
    pairs = [edges[a:b] for a, b in _spans(arrays["edge_offsets"])]
    tags = [arrays["node_tags"][a:b] for a, b in _spans(arrays["node_offsets"])]
    return _graphs(pairs, tags), arrays["labels"], arrays["test_fold"]


@lru_cache(maxsize=2)
def read_tu_folder(folder: Path) -> tuple[list[Graph], Tensor]:
    """Return the graphs and labels of a folder in the TU format."""
    (name, *others) = [file.name.removesuffix("_A.txt") for file in sorted(folder.glob("*_A.txt"))] or [""]
    if not name or others:
        raise BadInput(f"{folder} is no folder in the TU format: expected one file NAME_A.txt")
    edges, owner, labels = (_table(folder / f"{name}_{part}.txt") for part in ("A", "graph_indicator", "graph_labels"))
    tags = _table(folder / f"{name}_node_labels.txt")[:, 0] if (folder / f"{name}_node_labels.txt").exists() else None
    graph_of = owner[:, 0] - 1
    if edges.shape[1] != 2 or int(edges.max()) > len(graph_of) or int(graph_of.max()) + 1 != len(labels):
        raise BadInput(f"the files of {folder} do not fit one another")
    counts = graph_of.bincount(minlength=len(labels))
    first = counts.cumsum(0) - counts
    ends = edges - 1
    of_edge = graph_of[ends[:, 0]]
    if not bool((of_edge == graph_of[ends[:, 1]]).all()) or not bool((graph_of.diff() >= 0).all()):
        raise BadInput(f"{folder}: an edge leads to another graph, or the nodes of a graph do not stand together")
    pairs = [ends[of_edge == n] - first[n] for n in range(len(labels))]
    own = torch.zeros_like(graph_of) if tags is None else tags.unique(return_inverse=True)[1]
    parts = list(own.split(counts.tolist()))
    return _graphs(pairs, parts), labels[:, 0].unique(return_inverse=True)[1]


def _table(path: Path) -> Tensor:
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    try:
        return torch.from_numpy(np.loadtxt(path, delimiter=",", ndmin=2)).long()
    except ValueError as error:
        raise BadInput(f"{path} has a line that is no number ({str(error)[:80]})") from None


def _spans(offsets: Tensor) -> list[tuple[int, int]]:
    return list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))


def _graphs(pairs: list[Tensor], tags: list[Tensor]) -> list[Graph]:
    count = 1 + max(int(each.max()) for each in tags)
    if count == 1:  # no tags: degrees
        tags = [
            pair[:, 0].bincount(minlength=len(tag)).clamp(max=MAX_DEGREE) for pair, tag in zip(pairs, tags, strict=True)
        ]
        count = 1 + MAX_DEGREE
    features = [one_hot(each, count).float() for each in tags]
    return [Graph.make(len(x), pair, features=x) for pair, x in zip(pairs, features, strict=True)]
