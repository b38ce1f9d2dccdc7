"""Inspection of a classifier by glimpses: where it looked, and the share of every pixel in each glimpse.

The path is that of the means of all locations, whatever number of sampled paths the answer was averaged over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.interpret.inspection import Axis
from regard.interpret.inspections.image_classification import ImageClassificationInspection


class GlimpseInspection(ImageClassificationInspection):
    """An image, its label and a path of glimpses."""

    figure = "glimpse_path"

    def predict_and_capture(self) -> None:
        model: Any = self.predictor.model
        (self.prediction,) = self.predictor.predict([self.item], self.options)
        values = self.preprocess(self.item, next(model.parameters()))
        path = self._capture(lambda: model.look(values)[1])[0]  # T 2
        seen = model.retina(values.expand(len(path), -1, -1, -1), path)
        rows, columns = self.size
        self.centres: np.ndarray = ((path.float().cpu() + 1) / 2 * torch.tensor([columns, rows])).numpy()
        self.sides = [model.retina.size * 2**scale for scale in range(model.retina.scales)]
        squares = seen.float().view(len(path), len(self.sides), -1, model.retina.size, model.retina.size)
        self.seen: np.ndarray = squares.mean(2).detach().cpu().numpy()  # T k g g, grey

    def lay_out(self) -> None:
        """Rows are glimpses, at their finest squares; columns are pixels."""
        rows, columns = self.size
        boxes = [_clipped_box(x, y, self.sides[0], rows, columns) for x, y in self.centres.tolist()]
        numbers = [str(n) for n in range(1, len(boxes) + 1)]
        self.axes["glimpses"] = Axis("glimpses", numbers, boxes, [False] * len(boxes))
        cells = [(n % columns, n // columns) for n in range(rows * columns)]
        names, places = [f"{y + 1},{x + 1}" for x, y in cells], [{"box": [x, y, 1, 1]} for x, y in cells]
        self.axes["patches"] = Axis("patches", names, places, [False] * len(cells))
        self._axes_of = dict.fromkeys(self.store, ("glimpses", "patches"))


def _clipped_box(x: float, y: float, side: int, rows: int, columns: int) -> dict[str, Any]:
    """Return the pixels of a square that lie in the picture, rounded."""
    left, right = (min(max(round(x + half), 0), columns) for half in (-side / 2, side / 2))
    top, bottom = (min(max(round(y + half), 0), rows) for half in (-side / 2, side / 2))
    return {"box": [left, top, right - left, bottom - top]}
