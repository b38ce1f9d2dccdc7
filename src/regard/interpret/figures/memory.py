"""The addresses of the heads of a memory over time: reads beside writes, on one colour scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from regard import see
from regard.interpret.figures.base import InspectionFigure

USED = 0.1  # a cell counts as used from this weight on


class MemoryFigure(InspectionFigure):
    """A map per head: steps down, cells across up to the last used one; the read heads first, then the write heads."""

    def save(self, file: Path) -> None:
        read, write = (trace for trace in self.inspection.traces() if trace.kind in ("read", "write"))
        captions = [f"{side.kind} {n}" for side in (read, write) for n in range(1, 1 + side.weights.shape[1])]
        weights = torch.cat([read.weights, write.weights], 1)
        used = (weights.amax((0, 1, 2)) >= USED).nonzero().flatten().tolist()
        cells = used[-1] + 2 if used else weights.shape[-1]  # and one more: where nothing was
        shown = replace(read, weights=weights[..., :cells], heads=None).with_labels(read.rows, read.columns[:cells])
        whole = weights.shape[-1]
        title = f"cells read and written at every step, {min(cells, whole)} of {whole}"
        see.save(see.heads(shown, title, captions), file)
