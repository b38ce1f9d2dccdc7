"""GraphPreprocess: the way from a graph to a model's numbers, saved with the model.

It is one value, shared by training, prediction and the service: numbers of a node, kind and size of its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.functional import pad

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.modalities.graph import Graph
from regard.positions import GRAPH_POSITIONS


class GraphTensors(NamedTuple):
    """Graphs as a model reads them, padded to the largest."""

    nodes: Float[Tensor, "B N F"]
    edges: Int[Tensor, "B N N"]  # 0: none, else 1 + the type
    positions: Float[Tensor, "B N P"]
    lengths: Int[Tensor, " B"]


@dataclass(frozen=True)
class GraphPreprocess:
    """How a model is shown a graph.

    Args:
        input_dim: numbers of a node; a graph without features has ones.
        positions: "laplacian", "random_walk", or "none".
        position_dim: numbers of a position.
        max_nodes: larger graphs are refused, since attention and positions need memory for every pair of nodes.
    """

    input_dim: int = 1
    positions: Literal["none", "laplacian", "random_walk"] = "none"
    position_dim: int = field(0, low=0)
    max_nodes: int = 4096

    def __post_init__(self) -> None:
        validate(self)
        if (self.positions == "none") != (self.position_dim == 0):
            raise BadInput(f"positions={self.positions} does not fit position_dim={self.position_dim}")

    def place(self, graph: Graph) -> Float[Tensor, "N P"]:
        """Return the positions of the nodes."""
        if graph.nodes > self.max_nodes:
            raise BadInput(f"The graph has {graph.nodes:,} nodes; at most {self.max_nodes:,} are allowed.")
        if self.positions == "none":
            return torch.zeros(graph.nodes, 0)
        part = build_part(GRAPH_POSITIONS, self.positions, "positions", k=self.position_dim)
        found: Tensor = part(graph.edges, graph.nodes)
        return found

    def features(self, graph: Graph) -> Float[Tensor, "N F"]:
        """Return the features of the nodes."""
        if graph.features is None:
            if self.input_dim > 1:
                raise BadInput(f"The model needs {self.input_dim} numbers for each node; the graph has none.")
            return torch.ones(graph.nodes, 1)
        if graph.features.shape[1] != self.input_dim:
            raise BadInput(f"The model needs {self.input_dim} numbers a node, the graph has {graph.features.shape[1]}.")
        return graph.features

    def batch(self, graphs: Sequence[Any], positions: Sequence[Tensor] | None = None) -> GraphTensors:
        """Return graphs as one padded batch; `positions` may have been computed before."""
        read = [Graph.read(graph) for graph in graphs]
        places = [self.place(graph) for graph in read] if positions is None else list(positions)
        lengths = torch.tensor([graph.nodes for graph in read])
        most = int(lengths.max()) if read else 1
        if not read:
            empty = torch.zeros(0, 1, self.input_dim), torch.zeros(0, 1, 1, dtype=torch.long)
            return GraphTensors(*empty, torch.zeros(0, 1, self.position_dim), lengths.long())

        def filled(rows: Sequence[Tensor]) -> Tensor:
            return torch.stack([pad(row, (0, 0, 0, most - len(row))) for row in rows])

        edges = torch.stack([pad(graph.adjacency(), (0, most - graph.nodes, 0, most - graph.nodes)) for graph in read])
        return GraphTensors(filled([self.features(graph) for graph in read]), edges, filled(places), lengths)
