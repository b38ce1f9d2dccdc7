"""What a model of class maps or depth attends to: from the class tokens of a mask decoder, or from a point.

Strudel, Garcia, Laptev, Schmid: Segmenter. ICCV 2021. arXiv:2105.05633; Ranftl, Bochkovskiy, Koltun: Vision
Transformers for Dense Prediction. ICCV 2021. arXiv:2103.13413
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from regard import see
from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.interpret.figures.base import last_or
from regard.interpret.figures.output import OutputFigure
from regard.interpret.figures.pixel_attribution import parse_point
from regard.see.pixel_attribution import ImagePoint

MIDDLE: ImagePoint = (0.5, 0.5)


class DenseFigure(OutputFigure):
    """The photo, and one map for each class, head or layer; the output alone where nothing attends.

    Class tokens are those of Segmenter's mask decoder. Other models show attention from `query`, by default the middle.
    """

    views: ClassVar[Mapping[str, Sequence[str]]] = {
        "class": ("layer", "head", "query", "label"),
        "heads": ("layer", "query", "label"),
        "layers": ("query",),
        "rollout": ("query",),
    }

    def save(self, file: Path) -> None:
        inspection, options = self.inspection, self.options
        if not inspection.store:
            super().save(file)
            return
        has_classes = bool(inspection.decoder_layers) and options.query is None
        if options.label is not None and not has_classes:
            raise BadInput("--label is for the class tokens of a mask decoder, and not together with --query.")
        view = options.view or ("class" if has_classes or options.head is not None else "heads")
        if view in ("class", "heads") and has_classes:
            maps, caption = self._classes(view)
            place = None
        else:
            place = MIDDLE if options.query is None else parse_point(options.query, inspection.content)
            maps, caption = self._point(view, place)
        see.overlay_grid(inspection.photo, maps, self.title, caption, place=place, path=file)

    def _classes(self, view: str) -> tuple[dict[str, np.ndarray], str]:
        """Return maps from class tokens: of the classes that were found, or of every head of one class."""
        inspection, label = self.inspection, self.options.label
        names, labels = inspection.decoder_layers, inspection.predictor.labels
        if label is not None and label not in labels:
            raise UnknownName(f"this model knows no label '{label}'; {did_you_mean(label, labels)}")
        layer = last_or("layer", self.options.layer, len(names))
        found = inspection.class_maps(names[layer])  # H K Y X
        largest = sorted(inspection.prediction.masks, key=lambda mask: -int(mask.pixels.sum()))
        shown = [label] if label else [mask.label for mask in largest] or labels
        if view == "heads":
            each = found[:, labels.index(shown[0])]
            return _by_head(each), f"attention of the class token '{shown[0]}', decoder layer {layer}"
        which, of_heads = self._mean(found)
        maps = {one: which[labels.index(one)] for one in shown}
        return maps, f"attention of class tokens, decoder layer {layer}, {of_heads}"

    def _point(self, view: str, place: ImagePoint) -> tuple[Any, str]:
        """Return maps from a point of the image."""
        inspection, attribution = self.inspection, self.inspection.attribution
        own = zip(place, inspection.content, attribution.cells, strict=True)
        y, x = (min(fraction, 1 - 1e-6) * side / whole for fraction, side, whole in own)
        rough = "" if attribution.exact else "; pooled pixels by receptive field"
        if view == "rollout":
            pixels = inspection.cut(attribution.rollout((y, x)), attribution.uniform_weight())
            return {"rollout": pixels}, f"rollout from the marked point through {len(attribution.layers)} layers{rough}"
        count = len(attribution.layers)
        heads = [inspection.cut(attribution.heads(n, (y, x)), attribution.uniform_weight(n)) for n in range(count)]
        if view == "layers":
            rows = [(f"layer {n}", _by_head(each)) for n, each in enumerate(heads)]
            return rows, f"attention from the marked point, all layers and heads{rough}"
        layer = last_or("layer", self.options.layer, count)
        if view == "heads":
            return _by_head(heads[layer]), f"attention from the marked point, layer {layer}{rough}"
        which, of_heads = self._mean(heads[layer])
        return {of_heads: which}, f"attention from the marked point, layer {layer}, {of_heads}{rough}"

    def _mean(self, heads: np.ndarray) -> tuple[np.ndarray, str]:
        """Return the head that was asked for, or the mean of all, and how it is called."""
        if self.options.head is None:
            return heads.mean(0), f"mean of {len(heads)} heads"
        head = last_or("head", self.options.head, len(heads))
        return heads[head], f"head {head}"


def _by_head(maps: np.ndarray) -> dict[str, np.ndarray]:
    return {f"head {h}": each for h, each in enumerate(maps)}
