"""Graph convolutional network: each layer averages the neighbours, with weights that only degrees decide.

    GCN                  X' = relu(Â X W),    Â = D^-1/2 (A + I) D^-1/2                                    O(N² C)
    graph attention      the same sum, with weights that the vectors decide

The baseline of the graph Transformer: the same arguments and heads. Types of edges are not read, directions are
dropped. Positions are appended to the features.

Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks. ICLR 2017. arXiv:1609.02907
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn

from regard.blocks.points import mean_of_points, real_points
from regard.blocks.sparse_linear import SparseLinear
from regard.core.config import field
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.tensor_memo import TensorMemo
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a GCN; the defaults are the paper's for citation graphs."""

    input_dim: int = 8  # numbers of a node
    num_outputs: int = 2  # of a graph or of a node
    position_dim: int = field(0, low=0)  # numbers of a node's position; 0: none
    width: int = 16
    layers: int = 2
    residual: bool = False  # add the input of a layer to its output
    head: Literal["graph", "nodes"] = "nodes"
    dropout: float = field(0.5, low=0, below=1)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"dropout": 0.0}, "base": {}}


class GCN(ModelContract):
    """Graphs to numbers, of the graph or of every node."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        last = config.num_outputs if config.head == "nodes" else config.width
        sizes = [config.input_dim + config.position_dim, *[config.width] * (config.layers - 1), last]
        self.layers = nn.ModuleList(SparseLinear(a, b, dropout=config.dropout) for a, b in pairwise(sizes))
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        self.head = nn.Linear(config.width, config.num_outputs) if config.head == "graph" else None

    def forward(
        self,
        nodes: Float[Tensor, "B N F"],
        edges: Int[Tensor, "B N N"],
        positions: Float[Tensor, "B N P"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> Tensor:
        """Return B K for graphs, B N K for nodes. `edges` n m is 0 if there is no edge; nodes beyond `lengths` are
        padding."""
        x = nodes
        if self.config.position_dim:
            own = x.new_zeros(*x.shape[:2], self.config.position_dim) if positions is None else positions.to(x.dtype)
            x = torch.cat([x, own], -1)
        average = normalized_adjacency(edges, lengths).to(x.dtype)
        for depth, layer in enumerate(self.layers):
            mixed = average @ layer(x)
            if depth < len(self.layers) - 1 or self.head is not None:
                mixed = torch.relu(mixed)
            x = mixed + x if self.config.residual and mixed.shape == x.shape else mixed
        out: Tensor = x if self.head is None else self.head(mean_of_points(x, lengths))
        return out


def normalized_adjacency(edges: Int[Tensor, "B N N"], lengths: Int[Tensor, " B"] | None) -> Float[Tensor, "B N N"]:
    """Return D^-1/2 (A + I) D^-1/2 of the real nodes."""
    if lengths is None or (_unpadded_adjacency.takes(edges) and int(lengths.min()) == edges.shape[1]):
        return _unpadded_adjacency(edges)
    return _normalized(edges, real_points(edges, lengths))


def _normalized(edges: Int[Tensor, "B N N"], real: Bool[Tensor, "B N"]) -> Float[Tensor, "B N N"]:
    linked = (edges > 0) | (edges.mT > 0) | torch.eye(edges.shape[1], dtype=torch.bool, device=edges.device)
    linked = linked & real[:, None] & real[:, :, None]
    scale = linked.sum(-1).clamp(min=1).rsqrt()
    return scale[:, :, None] * linked * scale[:, None]


_unpadded_adjacency = TensorMemo(lambda edges: _normalized(edges, real_points(edges, None)))
