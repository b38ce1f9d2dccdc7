"""A graph, coloured by how much attention each node gets in a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from regard import see
from regard.interpret.figures.base import ClassesFigure, last_or


class GraphFigure(ClassesFigure):
    """The weight that each node gets from all others, the mean of a layer's heads or one of them."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"nodes": ("layer", "head")}

    @property
    def item(self) -> Any:
        return self.inspection.graph

    def save(self, file: Path) -> None:
        shown, received, caption = self.inspection.graph, None, self.inspection.note
        maps = list(self.inspection.store.values())
        if maps:
            held = maps[last_or("layer", self.options.layer, len(maps))]
            heads = list(range(held.heads))
            if self.options.head is not None:
                heads = [last_or("head", self.options.head, held.heads)]
            weights = held.rows_of(list(range(held.rows)), heads)[0].float().cpu()
            received = weights.mean(0).sum(0).numpy()
            which = "mean of the heads" if self.options.head is None else f"head {self.options.head}"
            caption = f"{held.name}, {which}: the sum of the weights that each node gets; one node gives 1 in all"
        edges = shown.edges.numpy()
        see.graph(edges, shown.nodes, received, shown.labels, self.title, caption, shown.directed, path=file)
