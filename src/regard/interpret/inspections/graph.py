"""Inspection of a predictor that reads a graph: its tokens are the nodes, under their names."""

from __future__ import annotations

from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.declared import DeclaredInspection


class GraphInspection(DeclaredInspection):
    """A graph and the output of a predictor."""

    input_axis = "nodes"
    figure = "graph"

    def show(self) -> None:
        self.graph = next(iter(self.item.values())) if isinstance(self.item, dict) else self.item

    def lay_out(self) -> None:
        names = self.graph.labels
        self.axes["nodes"] = Axis("nodes", names, [NO_POSITION] * len(names), [False] * len(names))
        for held in self.store.values():
            self._axes_of[held.name] = self._side(held.rows), self._side(held.columns)

    def _side(self, many: int) -> str:
        return "nodes" if many == self.graph.nodes else self._numbered(many)
