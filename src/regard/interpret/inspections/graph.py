"""Inspection of a predictor that reads a graph: its tokens are the nodes, under their names, at places of a drawing."""

from __future__ import annotations

from regard.interpret.inspection import NO_POSITION, Axis, Position
from regard.interpret.inspections.declared import DeclaredInspection
from regard.see.graph import graph_layout

MAX_PLACED = 1000  # nodes of a drawing; the layout of more takes longer than a model


class GraphInspection(DeclaredInspection):
    """A graph and the output of a predictor."""

    input_axis = "nodes"
    figure = "graph"

    def show(self) -> None:
        self.graph = next(iter(self.item.values())) if isinstance(self.item, dict) else self.item

    def lay_out(self) -> None:
        names = self.graph.labels
        self.axes["nodes"] = Axis("nodes", names, self._positions(), [False] * len(names))
        for held in self.store.values():
            self._axes_of[held.name] = self._side(held.rows), self._side(held.columns)

    def _positions(self) -> list[Position]:
        if self.graph.nodes > MAX_PLACED:
            return [NO_POSITION] * self.graph.nodes
        edges = self.graph.edges.numpy()
        places = graph_layout(edges, self.graph.nodes).round(3).tolist()
        return [{"place": place, "to": edges[1, edges[0] == n].tolist()} for n, place in enumerate(places)]

    def _side(self, many: int) -> str:
        return "nodes" if many == self.graph.nodes else self._numbered(many)
