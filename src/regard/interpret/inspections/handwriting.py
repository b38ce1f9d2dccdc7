"""Inspection of a line written by hand: which character of the text the window was on, for each point of the pen."""

from __future__ import annotations

from regard.interpret.inspection import NO_POSITION, Axis, Position
from regard.interpret.inspections.declared import DeclaredInspection
from regard.modalities.strokes import Strokes

END = "[end]"


class HandwritingInspection(DeclaredInspection):
    """A text and its strokes; rows are the points of the pen, columns the characters."""

    task = "handwriting"
    prediction: Strokes

    def lay_out(self) -> None:
        text = self.prediction.text
        positions: list[Position] = [{"text": [n, n + 1]} for n in range(len(text))]
        for held in self.store.values():
            rows = self._numbered(held.rows, "pen_points")
            if held.columns != len(text) + 1:  # a model without a text
                self._axes_of[held.name] = rows, self._numbered(held.columns)
                continue
            self.axes["text"] = Axis(
                "text", [*text, END], [*positions, NO_POSITION], [False] * len(text) + [True], text
            )
            self._axes_of[held.name] = rows, "text"
        self.input_axis = next(reversed(self.axes))
