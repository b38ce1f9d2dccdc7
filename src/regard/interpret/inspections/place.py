"""Inspection of a predictor that reads a place on the globe: its output there, and everywhere else as a map."""

from __future__ import annotations

from regard.interpret.inspections.declared import DeclaredInspection


class PlaceInspection(DeclaredInspection):
    """A place and the output of a predictor."""

    figure = "globe"

    def show(self) -> None:
        self.place = next(iter(self.item.values())) if isinstance(self.item, dict) else self.item
