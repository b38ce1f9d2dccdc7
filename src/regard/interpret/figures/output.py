"""The output of a predictor, printed, and drawn: over the picture that it belongs to, or by itself."""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import Unsupported
from regard.interpret.figures.base import InspectionFigure
from regard.modalities.strokes import Strokes
from regard.see.outputs import can_draw, describe_kind, draw_output
from regard.see.strokes import strokes


class OutputFigure(InspectionFigure):
    """Boxes, masks, depth or classes over a picture; strokes with the character attended to at each point.

    Other outputs are only printed.
    """

    @property
    def title(self) -> str:
        return f"{self.inspection.model}: {self.source}"

    def text(self, width: int = 100) -> str:
        return str(self.inspection.prediction)

    def save(self, file: Path) -> None:
        item, output = self.inspection.item, self.inspection.prediction
        if isinstance(output, Strokes):
            windows = [output.window.numpy()] if output.text else None
            strokes([output.points.numpy()], [output.text], windows, file)
            return
        if not can_draw(output) or not hasattr(item, "convert"):
            why = "" if hasattr(item, "convert") else " without a picture to draw over"
            raise Unsupported(f"There is no drawing of {describe_kind(type(output))}{why}; the answer is printed.")
        draw_output(item, output, self.source, file)
