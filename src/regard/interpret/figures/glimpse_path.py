"""Where a classifier looked, one glimpse after the other."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from regard import see
from regard.interpret.figures.base import InspectionFigure


class GlimpsePathFigure(InspectionFigure):
    """Numbered squares on the picture, and what was seen of each."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {"path": ()}

    @property
    def title(self) -> str:
        found = self.inspection.prediction
        return f"{self.source}: {found.label} ({100 * found.probability:.0f} %)"

    def text(self, width: int = 100) -> str:
        best = list(self.inspection.prediction.probabilities.items())[:3]
        line = "   ".join(f"{label} {100 * probability:.1f} %" for label, probability in best)
        places = (f"glimpse {n}: row {y:.1f}, column {x:.1f}" for n, (x, y) in enumerate(self.inspection.centres, 1))
        return "\n".join([line, "", *places])

    def save(self, file: Path) -> None:
        from PIL import Image

        photo, sides = Image.open(io.BytesIO(self.inspection.picture)), self.inspection.sides
        squares = f"squares of {', '.join(map(str, sides))} pixels, each seen as {sides[0]} x {sides[0]}"
        caption = f"{len(self.inspection.centres)} glimpses in this order; {squares}"
        see.glimpse_path(
            photo.convert("RGB"),
            self.inspection.centres,
            sides,
            self.title,
            caption,
            self.inspection.seen,
            file,
        )
