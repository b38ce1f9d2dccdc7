"""Graph: nodes and edges handed in.

An edge list, GraphML, pairs of node numbers, or a JSON object. Repeated edges count once; an undirected edge is stored
in both directions; self-loops stay. A graph may have no edges, but needs a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.modalities.base import (
    BOOLEAN,
    INTEGER,
    NO_LIMITS,
    NUMBER,
    STRING,
    Input,
    Limits,
    Source,
    array_schema,
    file_sources,
    object_schema,
)
from regard.modalities.decode_graph import SUFFIXES, decode_graph
from regard.modalities.image import decode_base64


@dataclass(frozen=True, eq=False)
class Graph(Input):
    """Nodes, edges from `edges[0]` to `edges[1]`, and numbers or classes that belong to them."""

    nodes: int
    edges: Int[Tensor, "2 E"]  # each once; undirected ones in both directions
    directed: bool = False
    names: tuple[str, ...] = ()  # of the nodes; empty: their numbers
    features: Float[Tensor, "N F"] | None = None  # of the nodes
    edge_types: Int[Tensor, " E"] | None = None  # from 0

    kind = "graph"
    units = "edges"
    is_object = True
    media_types = ("application/xml", "text/plain", "application/octet-stream")

    @classmethod
    def make(
        cls,
        nodes: int,
        edges: Any,
        directed: bool = False,
        names: Sequence[str] = (),
        features: Tensor | None = None,
        edge_types: Any = None,
    ) -> Graph:
        """Return a graph from pairs of node numbers, E 2, each undirected edge in one direction or in both."""
        pairs = torch.as_tensor(edges, dtype=torch.long).reshape(-1, 2).T
        if nodes < 1:
            raise BadInput("The graph has no nodes.")
        if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < nodes:
            wrong = int(pairs.max()) if int(pairs.max()) >= nodes else int(pairs.min())
            raise BadInput(f"An edge names node {wrong}; the graph has nodes 0 to {nodes - 1}.")
        if features is not None and (features.ndim != 2 or len(features) != nodes or not features.isfinite().all()):
            raise BadInput(f"Expected finite features, one row for each of {nodes} nodes; got {tuple(features.shape)}.")
        kinds = torch.zeros(pairs.shape[1], dtype=torch.long) if edge_types is None else torch.as_tensor(edge_types)
        if kinds.shape != pairs.shape[1:] or (kinds.numel() and int(kinds.min()) < 0):
            raise BadInput(f"Expected a type from 0 for each of {pairs.shape[1]} edges.")
        if not directed:
            pairs, kinds = torch.cat([pairs, pairs.flip(0)], 1), torch.cat([kinds, kinds])
        code, first = _unique(pairs[0] * nodes + pairs[1])
        unique = torch.stack([code // nodes, code % nodes])
        own = None if edge_types is None else kinds[first].long()
        return cls(nodes, unique, directed, tuple(names), features, own)

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> Graph:
        """Return the graph of a path, the bytes of a file, a JSON object {"nodes", "edges"}, or one read before."""
        if isinstance(source, Graph):
            _check(source.edges.shape[1] // (1 if source.directed else 2), limits)
            return source
        if isinstance(source, (str, Path, bytes)):
            names, edges, directed = decode_graph(source, limits.edges)
            return cls.make(len(names), edges, directed, names)
        if not isinstance(source, dict):
            wanted = 'a path, the bytes of a file, or {"nodes": 3, "edges": [[0, 1]]}'
            raise BadInput(f"Expected a graph ({wanted}), got {type(source).__name__}.")
        return _from_object(source, limits)

    def __str__(self) -> str:
        loops = int((self.edges[0] == self.edges[1]).sum())
        each = self.edges.shape[1] if self.directed else (self.edges.shape[1] + loops) // 2
        kind = "directed" if self.directed else "undirected"
        return f"{self.nodes:,} nodes, {each:,} {kind} edges"

    def to_json(self) -> dict[str, Any]:
        """Return the graph as a request takes it."""
        found: dict[str, Any] = {"nodes": self.nodes, "edges": self.edges.T.tolist(), "directed": self.directed}
        found |= {} if self.features is None else {"features": self.features.tolist()}
        return found | ({} if self.edge_types is None else {"edge_types": self.edge_types.tolist()})

    @property
    def labels(self) -> list[str]:
        """The names of the nodes, or their numbers."""
        return list(self.names) or [str(n) for n in range(self.nodes)]

    def adjacency(self) -> Int[Tensor, "N N"]:
        """Return a matrix that is 0 where there is no edge, else 1 + its type."""
        found = torch.zeros(self.nodes, self.nodes, dtype=torch.long)
        found[self.edges[0], self.edges[1]] = 1 if self.edge_types is None else 1 + self.edge_types
        return found

    @classmethod
    def is_single(cls, given: Any) -> bool:
        return isinstance(given, (str, Path, bytes, dict, Graph))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        return file_sources(arguments, SUFFIXES, "graphs")

    @classmethod
    def from_json(cls, value: Any, limits: Limits = NO_LIMITS) -> Graph:
        """Return the graph of a JSON object, of a base64 string, of the bytes of an upload, or one read before."""
        return cls.read(decode_base64(value) if isinstance(value, str) else value, limits)

    @classmethod
    def size(cls, value: Graph) -> float:
        return value.edges.shape[1]

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        optional = {"directed": BOOLEAN, "features": array_schema(array_schema(NUMBER))}
        optional |= {"edge_types": array_schema({**INTEGER, "minimum": 0})}
        required = {"nodes": {**INTEGER, "minimum": 1}, "edges": array_schema(array_schema(INTEGER))}
        file = {**STRING, "contentEncoding": "base64", "description": "the bytes of an edge list or GraphML"}
        return {"anyOf": [object_schema(required | optional, optional=optional), file]}


def _unique(code: Int[Tensor, " E"]) -> tuple[Tensor, Tensor]:
    """Return the different numbers, sorted, and where each was first."""
    order = torch.sort(code, stable=True)
    first = torch.ones_like(code, dtype=torch.bool)
    first[1:] = order.values[1:] != order.values[:-1]
    return order.values[first], order.indices[first]


def _check(count: int, limits: Limits) -> None:
    if count > limits.edges:
        raise BadInput(f"The graph has {count:,} edges; at most {limits.edges:,} are allowed.")


def _from_object(values: dict[str, Any], limits: Limits) -> Graph:
    known = ("nodes", "edges", "directed", "features", "edge_types")
    if unknown := [str(key) for key in values if key not in known]:
        raise BadInput(f"A graph has no field '{unknown[0][:40]}'; it has {', '.join(known)}.")
    nodes, edges = values.get("nodes"), values.get("edges", [])
    if not isinstance(nodes, int) or isinstance(nodes, bool) or not 1 <= nodes <= limits.edges:
        raise BadInput(f"nodes must be a number from 1 to {limits.edges:,}, got {nodes!r:.40}.")
    if not isinstance(edges, (list, tuple)) or not isinstance(values.get("directed", False), bool):
        raise BadInput("edges must be a list of pairs of node numbers, and directed true or false.")
    _check(len(edges), limits)
    for pair in edges:
        good = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not good or any(isinstance(x, bool) or not isinstance(x, int) or not 0 <= x < nodes for x in pair):
            raise BadInput(f"Every edge must be two node numbers from 0 to {nodes - 1}, got {pair!r:.40}.")
    features, types = values.get("features"), values.get("edge_types")
    try:
        made = None if features is None else torch.tensor(features, dtype=torch.float32)
        kinds = None if types is None else torch.tensor(types, dtype=torch.long)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise BadInput("features must be a row of numbers for each node, edge_types a number for each edge.") from None
    return Graph.make(nodes, edges, values.get("directed", False), features=made, edge_types=kinds)
