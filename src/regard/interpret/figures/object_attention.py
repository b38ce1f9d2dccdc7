"""Where a detector looked: the cross-attention of every found object, and self-attention at points of the image.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872, figures 3 and 6
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from regard import see
from regard.interpret.figures.base import last_or
from regard.interpret.figures.output import OutputFigure
from regard.interpret.figures.pixel_attribution import parse_point
from regard.interpret.inspections.object_detection import FoundObject
from regard.see.outputs import label_colors
from regard.see.overlay import OutlinedBox

MAX_OBJECTS = 23  # that are drawn, beside the photo


class ObjectAttentionFigure(OutputFigure):
    """The photo with its boxes, and one map for each object, head or point."""

    views: ClassVar[Mapping[str, Sequence[str]]] = {
        "cross": ("layer", "head", "label"),
        "heads": ("layer", "label"),
        "encoder": ("layer", "head", "query"),
        "rollout": ("label",),
    }

    def save(self, file: Path) -> None:
        inspection, view = self.inspection, self.options.view or "cross"
        names = inspection.layer_names("self" if view == "encoder" else "cross") if inspection.store else []
        if not names or not inspection.strides:
            super().save(file)
            return
        objects = inspection.objects(self.options.label)[:MAX_OBJECTS]
        colors = label_colors(one.label for one in objects)
        outlines = {_name(n, one): [(one.box, colors[one.label])] for n, one in enumerate(objects, 1)}
        is_found = objects[0].score >= inspection.options.min_score
        maps: dict[str, np.ndarray | None] = {f"{len(objects)} found" if is_found else "nothing found; likeliest": None}
        boxes: dict[str, list[OutlinedBox]] = {next(iter(maps)): [box for each in outlines.values() for box in each]}
        places: dict[str, tuple[float, float]] = {}
        layer = last_or("layer", self.options.layer, len(names))
        if view == "rollout":
            maps |= dict(zip(outlines, inspection.rollout_of(objects), strict=True))
            caption, boxes = "cross-attention of each object, rolled out through the encoder", boxes | outlines
        elif view == "heads":
            found = inspection.on_pixels(names[layer], [objects[0].query])[:, 0]
            heads = {f"head {h}": each for h, each in enumerate(found)}
            maps, boxes = maps | heads, boxes | dict.fromkeys(heads, next(iter(outlines.values())))
            caption = f"cross-attention of {_name(1, objects[0])}, decoder layer {layer}"
        elif view == "encoder":
            places = self._points(objects)
            maps |= self._rows(names[layer], places, [inspection.cell_at(self._on_canvas(p)) for p in places.values()])
            caption = f"self-attention at the marked points, encoder layer {layer}, {self._which_head()}"
        else:
            maps |= self._rows(names[layer], outlines, [one.query for one in objects])
            caption = f"cross-attention of each object, decoder layer {layer}, {self._which_head()}"
            boxes |= outlines
        see.overlay_grid(inspection.photo, maps, self.title, caption, place=places, path=file, boxes=boxes)

    def _rows(self, name: str, names: Mapping[str, object], rows: list[int]) -> dict[str, np.ndarray]:
        """Return the maps of rows, of one head or the mean of all, by name."""
        heads, head = self.inspection.on_pixels(name, rows), self.options.head
        chosen = heads.mean(0) if head is None else heads[last_or("head", head, len(heads))]
        return dict(zip(names, chosen, strict=True))

    def _which_head(self) -> str:
        return "mean of the heads" if self.options.head is None else f"head {self.options.head}"

    def _points(self, objects: Sequence[FoundObject]) -> dict[str, tuple[float, float]]:
        """Return the point that was asked for, or the middle of every object, as fractions of the image."""
        if self.options.query is not None:
            return {"this point": parse_point(self.options.query, self.inspection.content)}
        middles = (((b[1] + b[3]) / 2, (b[0] + b[2]) / 2) for b in (one.box for one in objects))
        return {_name(n, one): at for (n, one), at in zip(enumerate(objects, 1), middles, strict=True)}

    def _on_canvas(self, point: tuple[float, float]) -> tuple[float, float]:
        sides = zip(point, self.inspection.content, self.inspection.size, strict=True)
        y, x = (min(fraction, 1 - 1e-6) * own / side for fraction, own, side in sides)
        return y, x


def _name(number: int, one: FoundObject) -> str:
    return f"{number}: {one.label} {100 * one.score:.0f} %"
