"""The addresses of the heads of a memory over time: reads beside writes, on one colour scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from regard import see
from regard.interpret.figures.base import InspectionFigure


class MemoryFigure(InspectionFigure):
    """A map per head: steps down, cells across; the read heads first, then the write heads."""

    @property
    def title(self) -> str:
        return "  →  ".join(self.inspection.summary())

    def text(self, width: int = 100) -> str:
        return "\n".join(self.inspection.summary())

    def save(self, file: Path) -> None:
        read, write = (trace for trace in self.inspection.traces() if trace.kind in ("read", "write"))
        joined = replace(read, weights=torch.cat([read.weights, write.weights], 1))
        reads = read.weights.shape[1]
        last = reads + write.weights.shape[1] - 1
        names = [f"{first}" if first == end else f"{first} to {end}" for first, end in ((0, reads - 1), (reads, last))]
        see.save(see.heads(joined, f"cells read (head {names[0]}) and written (head {names[1]}) at every step"), file)
