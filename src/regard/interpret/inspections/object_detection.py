"""Inspection of a detector: what each query found, and which cells of the image it and the encoder looked at.

Rows of the decoder are named after what their query found; the cells of all levels of a pyramid are one side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.core.errors import BadInput, UnknownName, Unsupported, did_you_mean
from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.image import ImageInspection
from regard.see.pixel_attribution import PixelAttribution
from regard.tasks.image.object_detection import ObjectDetector


class FoundObject(NamedTuple):
    """A query and what it found; the box (left, top, right, bottom) is in fractions of the image."""

    query: int
    label: str
    score: float
    box: tuple[float, float, float, float]


class ObjectDetectionInspection(ImageInspection):
    """A picture and the objects in it."""

    figure = "object_attention"
    predictor: ObjectDetector

    def read(self) -> None:
        ((_, found),) = self.predictor.detect([self.item])
        rows = zip(found.scores.tolist(), found.classes.tolist(), found.boxes.tolist(), strict=True)
        self.said = [
            FoundObject(n, self.predictor.labels[k], score, tuple(box)) for n, (score, k, box) in enumerate(rows)
        ]
        super().read()

    def objects(self, label: str | None = None) -> list[FoundObject]:
        """Return what was found, of one label or of all, the surest first; where nothing was, the likeliest query."""
        labels = self.predictor.labels
        if label is not None and label not in labels:
            raise UnknownName(f"this model knows no label '{label}'; {did_you_mean(label, labels)}")
        if not any(label in (None, one.label) for one in self.said):
            raise BadInput(f"No query of this image takes anything for '{label}'; leave out --label.")
        ranked = sorted((one for one in self.said if label in (None, one.label)), key=lambda one: -one.score)
        return [one for one in ranked if one.score >= self.options.min_score] or ranked[:1]

    # -- where tokens are ----------------------------------------------------------------------------------------------

    def lay_out(self) -> None:
        """Name the queries and place the cells; a model that does not tell its strides is laid out as any other."""
        self.strides: list[int] = list(getattr(getattr(self.predictor.model, "stem", None), "strides", []))
        if len(self.strides) < 2:
            super().lay_out()
        if not self.strides:
            return
        tokens, positions = list[str](), list[dict[str, Any]]()
        for stride, (down, right) in zip(self.strides, self.grids, strict=True):
            for y in range(down):
                for x in range(right):
                    wide, high = (min(stride, side - stride * n) for side, n in ((self.size[1], x), (self.size[0], y)))
                    tokens.append(f"{y + 1},{x + 1}" + (f" / {stride}" if len(self.strides) > 1 else ""))
                    positions.append({"box": [x * stride, y * stride, wide, high]})
        cells = self.input_axis
        self.axes = {cells: Axis(cells, tokens, positions, [False] * len(tokens))}
        names = [f"{one.query + 1}: {one.label} {100 * one.score:.0f} %" for one in self.said]
        found = {one.query for one in self.objects()}  # the others found nothing
        self.axes["queries"] = Axis(
            "queries", names, [NO_POSITION] * len(names), [n not in found for n in range(len(names))]
        )
        for held in self.store.values():
            rows = "queries" if held.kind == "cross" or self._of_decoder(held.name) else cells
            self._axes_of[held.name] = rows, "queries" if self._of_decoder(held.name) else cells

    def _of_decoder(self, name: str) -> bool:
        return name.startswith("decoder.") and self.store[name].kind == "self"

    @property
    def grids(self) -> list[tuple[int, int]]:
        """Rows and columns of the cells of each level."""
        rows, columns = self.size
        return [(-(-rows // stride), -(-columns // stride)) for stride in self.strides]

    # -- maps on pixels ------------------------------------------------------------------------------------------------

    def layer_names(self, kind: str) -> list[str]:
        """Return the layers of the decoder that look at the image ("cross"), or those of the encoder ("self")."""
        part = "decoder." if kind == "cross" else "encoder."
        return [name for name in self.store if name.startswith(part) and self.store[name].kind == kind]

    def cell_at(self, point: tuple[float, float]) -> int:
        """Return the cell of the finest level at a point of the canvas, fractions of its height and width."""
        (_, right), stride = self.grids[0], self.strides[0]
        y, x = (int(fraction * side) // stride for fraction, side in zip(point, self.size, strict=True))
        return y * right + x

    def on_pixels(self, name: str, rows: list[int]) -> np.ndarray:
        """Return rows of a map as H n Y X on the pixels of the image: the levels added, in multiples of uniform."""
        weights = self.store[name].rows_of(rows)[0].float().cpu().numpy()  # H n M
        return self.spread(weights)

    def rollout_of(self, objects: list[FoundObject]) -> list[np.ndarray]:
        """Return for each object the rollout of its last cross-attention through the encoder, Y X."""
        if len(self.strides) != 1 or not self._last:
            raise Unsupported("There is no rollout through several levels of cells; leave out --view rollout.")
        steps = [step for step in self.steps_on_patches() if step.kind in ("self", "move")]
        rows = self.store[self.layer_names("cross")[-1]].rows_of([one.query for one in objects])[0].mean(0)
        found = [PixelAttribution(steps, row).rollout().float().cpu().numpy() for row in rows]
        return [self._cut(each / each.sum()) for each in found]

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Return weights of cells (... M) as densities on the pixels of the image, (... Y X); 1 is uniform."""
        total, begin = np.zeros((*weights.shape[:-1], *self.size)), 0
        for stride, (down, right) in zip(self.strides, self.grids, strict=True):
            part = weights[..., begin : begin + down * right].reshape(*weights.shape[:-1], down, right)
            pixels = part.repeat(stride, -2).repeat(stride, -1)[..., : self.size[0], : self.size[1]]
            total += pixels / stride**2
            begin += down * right
        return self._cut(total)

    def _cut(self, density: np.ndarray) -> np.ndarray:
        """Return the part of a map that is image, not border, in multiples of uniform attention to that part."""
        rows, columns = self.content
        return density[..., :rows, :columns] * rows * columns
