"""The hops over a story: the weight of every sentence at every hop, beside the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from regard import see
from regard.interpret.figures.base import InspectionFigure


class StoryHopsFigure(InspectionFigure):
    """A row per sentence, a column per hop."""

    def text(self, width: int = 100) -> str:
        read = [
            f"hop {number}  {100 * row.max():3.0f} %  {self.sentences[int(row.argmax())]}"
            for number, row in enumerate(self._hops(), 1)
        ]
        return "\n".join([super().text(width), "", *read, "", "Each hop reads the sentence that it looks at most."])

    def save(self, file: Path) -> None:
        see.save(see.story_hops(self.sentences, torch.from_numpy(self._hops()), self.title), file)

    @property
    def sentences(self) -> Sequence[str]:
        found: Sequence[str] = self.inspection.axes["sentence"].tokens
        return found

    def _hops(self) -> np.ndarray:
        """Return the weight of every sentence at every hop."""
        return np.stack([self.inspection.row(name, 0, 0) for name in self.inspection.store])
