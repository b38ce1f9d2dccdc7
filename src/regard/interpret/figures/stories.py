"""The hops over a story: the weight of every sentence at every hop, beside the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from regard import see
from regard.interpret.figures.base import InspectionFigure


class StoryHopsFigure(InspectionFigure):
    """A row per sentence, a column per hop."""

    def save(self, file: Path) -> None:
        hops = np.stack([self.inspection.row(name, 0, 0) for name in self.inspection.store])
        see.save(see.story_hops(self.inspection.axes["sentence"].tokens, torch.from_numpy(hops), self.title), file)
