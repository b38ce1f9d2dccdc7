"""Inspection of a caption: where the captioner looked at each of its words.

The caption is searched for as usual; then the model reads it once and its maps are stored. Rows are the words that were
written and the end, columns the parts of the picture.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.image import ImageInspection
from regard.tasks.image.captioning import Captioner

END = "[end]"


class CaptionInspection(ImageInspection):
    """A picture, its caption, and the attention of the words to the parts of the picture."""

    figure = "caption_attention"
    predictor: Captioner

    def predict_and_capture(self) -> None:
        (self.prediction,) = self.predictor.predict([self.item], self.options)
        ids = list(self.prediction.candidates[0].tokens or ())
        self._capture(lambda: self.predictor.read_caption(self.item, ids))
        self.words = [*self.predictor.text.pieces(ids), END]

    def lay_out(self) -> None:
        """Place the parts of the picture and the words."""
        self.grid = self.predictor.grid_size
        (down, right), (rows, columns) = self.grid, self.size
        cells = [(y, x) for y in range(down) for x in range(right)]
        edges = [[round(n * side / many) for n in range(many + 1)] for side, many in ((rows, down), (columns, right))]
        boxes: list[dict[str, Any]] = [
            {"box": [edges[1][x], edges[0][y], edges[1][x + 1] - edges[1][x], edges[0][y + 1] - edges[0][y]]}
            for y, x in cells
        ]
        names = [f"{y + 1},{x + 1}" for y, x in cells]
        self.axes["patches"] = Axis("patches", names, boxes, [False] * len(cells))
        many = len(self.words)
        self.axes["caption"] = Axis("caption", self.words, [NO_POSITION] * many, [False] * (many - 1) + [True])
        for held in self.store.values():
            writes = "patches" if held.kind == "self" and not held.name.startswith("decoder.") else "caption"
            reads = "caption" if held.kind == "self" and writes == "caption" else "patches"
            self._axes_of[held.name] = writes, reads

    def layer_names(self) -> list[str]:
        """Return the layers in which words attend to the picture."""
        return [held.name for held in self.store.values() if self._axes_of[held.name] == ("caption", "patches")]

    def word_maps(self, name: str) -> np.ndarray:
        """Return what every word attends to in a layer, H words Y X on the picture's parts, in multiples of uniform."""
        weights = self.store[name].rows_of(list(range(len(self.words))))[0].float().cpu().numpy()
        found: np.ndarray = weights.reshape(*weights.shape[:2], *self.grid) * weights.shape[-1]
        return found
