"""Strokes: a line written by a pen, as offsets from point to point."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import torch

from regard.core.shapes import Float, Int, Tensor
from regard.modalities.base import BOOLEAN, NUMBER, STRING, Output, array_schema, object_schema


@dataclass(frozen=True, eq=False)
class Strokes(Output):
    """A handwritten line. Lengths are in character heights, x to the right and y down."""

    text: str
    points: Float[Tensor, "T 3"]  # dx, dy, 1 where the pen is lifted after the point
    window: Float[Tensor, "T U"]  # attention of each point to each character, and last to the end of the text
    finished: bool = True  # False: cut off before the window had reached the end

    kind = "strokes"

    @property
    def character_index(self) -> Int[Tensor, " T"]:
        """Which character of the text each point belongs to: where the window was; empty without a text."""
        window = self.window[:, : len(self.text)]
        return window.argmax(-1) if self.text else window.new_zeros(0, dtype=torch.long)

    def strokes(self) -> list[Float[Tensor, "N 2"]]:
        """Return the positions of the pen, one tensor for each time it was down."""
        return list(self.points[:, :2].cumsum(0).split(self._lengths()))

    def characters(self) -> list[list[Float[Tensor, "N 2"]]]:
        """Return the strokes of each character of the text: a stroke belongs to the one it attended to most."""
        found: list[list[Tensor]] = [[] for _ in self.text]
        for stroke, window in zip(self.strokes(), self.window.split(self._lengths()), strict=True):
            found[int(window[:, : len(self.text)].sum(0).argmax())].append(stroke)
        return found

    def _lengths(self) -> list[int]:
        """Return the number of points of each stroke; the last may lack its end."""
        ends = [0, *(self.points[:, 2].nonzero()[:, 0] + 1).tolist()]
        ends = ends if ends[-1] == len(self.points) else [*ends, len(self.points)]
        return [after - before for before, after in pairwise(ends)]

    def __str__(self) -> str:
        return f"{self.text}: {len(self.points)} points in {len(self._lengths())} strokes"

    def to_json(self) -> dict[str, Any]:
        points, window = ([[round(x, 5) for x in row] for row in rows.tolist()] for rows in (self.points, self.window))
        return {"text": self.text, "points": points, "window": window, "finished": self.finished}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        points, window = (torch.tensor(values[name], dtype=torch.float32) for name in ("points", "window"))
        return cls(values["text"], points.reshape(-1, 3), window, values["finished"])

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        rows = array_schema(array_schema(NUMBER))
        return object_schema({"text": STRING, "points": rows, "window": rows, "finished": BOOLEAN})

    def difference(self, other: Strokes) -> float:
        """Return the mean distance of the pen along the two lines, in character heights, at most 1."""
        a, b = (one.points[:, :2].cumsum(0) for one in (self, other))
        size = min(len(a), len(b))
        return float((a[:size] - b[:size]).norm(dim=-1).mean().clamp(max=1.0)) if size else float(len(a) != len(b))
