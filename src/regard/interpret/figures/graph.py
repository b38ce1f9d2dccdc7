"""A graph, coloured by how much attention each node gets in a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from regard import see
from regard.interpret.figures.base import InspectionFigure, last_or
from regard.modalities.classes import Classes

TOP = 3  # labels that are printed


class GraphFigure(InspectionFigure):
    """The weight that each node gets from all others, the mean of a layer's heads or one of them."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"nodes": ("layer", "head")}

    @property
    def title(self) -> str:
        found = self.inspection.prediction
        if isinstance(found, Classes):
            return f"{self.source}: {found.label} ({100 * found.probability:.0f} %)"
        return f"{self.inspection.model}: {self.source}"

    def text(self, width: int = 100) -> str:
        found, said = self.inspection.prediction, str(self.inspection.graph)
        if not isinstance(found, Classes):
            return f"{said}\n{found}"
        best = list(found.probabilities.items())[:TOP]
        return "   ".join(f"{label} {100 * probability:.1f} %" for label, probability in best) + f"\n\n{said}"

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
