"""ESOL: how well 1,128 molecules dissolve in water, log mol/L, as graphs of atoms and bonds.

An atom is its element, charge, number of hydrogens and whether it is aromatic, one-hot; a bond has one of four types.
Targets are shifted and scaled by the mean and standard deviation of the training part; RMSE is reported in log mol/L.

Delaney: ESOL: Estimating Aqueous Solubility Directly from Molecular Structure. J. Chem. Inf. Comput. Sci. 2004
Wu et al.: MoleculeNet. 2018. arXiv:1703.00564
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import one_hot

from regard.core.shapes import Tensor
from regard.data.data_dir import find_dataset
from regard.data.graphs.graph_dataset import GraphDataset
from regard.modalities.graph import Graph

ELEMENTS = (6, 7, 8, 9, 15, 16, 17, 35, 53)  # others share one more
INPUT_DIM = len(ELEMENTS) + 1 + 3 + 5 + 1


@dataclass(frozen=True)
class ESOL(GraphDataset):
    """Settings of the dataset."""

    path: str = "graphs_esol"

    @property
    def input_dim(self) -> int:
        return INPUT_DIM

    @property
    def edge_types(self) -> int:
        return 4

    def graphs(self, split: str) -> tuple[list[Graph], Tensor]:
        graphs, targets, parts = _read(find_dataset(self.path))
        rows = (parts == ("train", "val", "test").index(split)).nonzero()[:, 0]
        return [graphs[n] for n in rows.tolist()], targets[rows]


@lru_cache(maxsize=1)
def _read(folder: Path) -> tuple[list[Graph], Tensor, Tensor]:
    with np.load(folder / "esol.npz") as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files if file[name].dtype.kind in "iufb"}
    element = torch.full_like(arrays["atomic_num"].long(), len(ELEMENTS))
    for n, number in enumerate(ELEMENTS):
        element[arrays["atomic_num"] == number] = n
    parts = [one_hot(element, len(ELEMENTS) + 1), one_hot(arrays["formal_charge"].long().clamp(-1, 1) + 1, 3)]
    parts += [one_hot(arrays["num_h"].long().clamp(0, 4), 5), arrays["aromatic"].long()[:, None]]
    features, edges = torch.cat(parts, 1).float(), torch.stack([arrays["edge_src"], arrays["edge_dst"]], 1).long()
    nodes, bonds = arrays["node_offsets"].tolist(), arrays["edge_offsets"].tolist()
    graphs = [
        Graph.make(b - a, edges[c:d], features=features[a:b], edge_types=arrays["bond_type"][c:d].long())
        for a, b, c, d in zip(nodes[:-1], nodes[1:], bonds[:-1], bonds[1:], strict=True)
    ]
    return graphs, arrays["y"].float(), arrays["split"].long()
