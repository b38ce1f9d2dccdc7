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
            rows = self._pen_points(held.rows)
            if held.columns != len(text) + 1:  # a model without a text
                self._axes_of[held.name] = rows, self._numbered(held.columns)
                continue
            self.axes["text"] = Axis(
                "text", [*text, END], [*positions, NO_POSITION], [False] * len(text) + [True], text
            )
            self._axes_of[held.name] = rows, "text"
        self.input_axis = next(reversed(self.axes))

    def _pen_points(self, many: int) -> str:
        """Return the axis of the points, where the pen was at each; last may be the step that ended the line."""
        points = self.prediction.points
        places, lifted = points[:, :2].cumsum(0).tolist(), [True, *(points[:, 2] > 0.5).tolist()]
        positions: list[Position] = [
            {"pen": [round(x, 4), round(y, 4)], "drawn": not up} for (x, y), up in zip(places, lifted, strict=False)
        ]
        after = many - len(positions)
        tokens = [*(str(n) for n in range(1, len(positions) + 1)), *[END] * after]
        special = [False] * len(positions) + [True] * after
        self.axes["pen_points"] = Axis("pen_points", tokens, [*positions, *[NO_POSITION] * after], special)
        return "pen_points"
