"""Typed outputs over the picture they belong to: boxes, masks, depth, classes; an enlarged picture covers it.

    draw_output(photo, boxes, path="boxes.png")

The kind of the output decides what is drawn. The labels of one output have distinct colours, the same for the same set
of labels.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import Unsupported
from regard.modalities.boxes import Boxes
from regard.modalities.classes import Classes
from regard.modalities.depth import Depth
from regard.modalities.generated_image import GeneratedImage
from regard.modalities.masks import Masks
from regard.see.save import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (  # 7 of Okabe and Ito (2008), then lighter and darker hues between them; all readable under black text
    *("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#9ACD32"),
    *("#B39DDB", "#00CED1", "#FF8A80", "#A1887F", "#FF4FC3", "#90A4AE", "#FFCC80", "#2ECC40"),
    *("#8E7CFF", "#C0CA33", "#F06292", "#80DEEA", "#D4A017", "#B2DFDB", "#E1BEE7", "#FF7043"),
)
_LONG = 5.0  # inches: the longer side of the picture
_BARS = 5  # classes that are listed


def label_colors(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour for every label, in alphabetical order of the labels; more than there are colours repeat them."""
    return {label: COLORS[n % len(COLORS)] for n, label in enumerate(sorted(set(labels)))}


def can_draw(output: Any) -> bool:
    """Return whether there is a drawing for an output over a picture."""
    return type(output) in _DRAWINGS


def draw_output(photo: Any, output: Any, title: str = "", path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw an output over its picture (a PIL image or an array Y X C); with `path` (.png, .svg) also save it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not can_draw(output):
        known = ", ".join(kind.__name__ for kind in _DRAWINGS)
        raise Unsupported(f"There is no drawing of {type(output).__name__} over a picture; there is one of {known}.")
    pixels = np.asarray(photo.convert("RGB") if hasattr(photo, "convert") else photo)
    height, width = pixels.shape[:2]
    inches = _LONG / max(height, width)
    figure = Figure(figsize=(width * inches, height * inches + (0.4 if title else 0.0)), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, height * inches / (height * inches + (0.4 if title else 0.0))))
    axes.imshow(pixels, interpolation="nearest", extent=(0, width, height, 0))
    axes.set_axis_off()
    _DRAWINGS[type(output)](axes, output)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    if title:
        figure.suptitle(title, fontsize=9, y=0.99)
    if path is not None:
        save(figure, path)
    return figure


def _draw_boxes(axes: Axes, boxes: Boxes) -> None:
    from matplotlib.patches import Rectangle

    colors = label_colors(box.label for box in boxes.boxes)
    for box in reversed(boxes.boxes):  # the most certain on top
        color = colors[box.label]
        size = box.right - box.left, box.bottom - box.top
        axes.add_patch(Rectangle((box.left, box.top), *size, fill=False, edgecolor=color, linewidth=1.8))
        _label(axes, box.left, box.top, f"{box.label} {100 * box.score:.0f} %", color)


def _draw_masks(axes: Axes, masks: Masks) -> None:
    from matplotlib.colors import to_rgb

    colors = label_colors(mask.label for mask in masks.masks)
    for mask in reversed(masks.masks):
        layer = np.zeros((masks.height, masks.width, 4))
        layer[mask.pixels] = (*to_rgb(colors[mask.label]), 0.5)
        axes.imshow(layer, interpolation="nearest", extent=(0, masks.width, masks.height, 0))
        if mask.pixels.any():
            rows, columns = np.nonzero(mask.pixels)
            _label(axes, float(columns.mean()), float(rows.mean()), mask.label, colors[mask.label])


def _draw_depth(axes: Axes, depth: Depth) -> None:
    from matplotlib.patheffects import withStroke

    height, width = depth.values.shape
    shown = axes.imshow(depth.values, cmap="magma_r", interpolation="nearest", extent=(0, width, height, 0))
    inset = axes.inset_axes((0.95, 0.05, 0.02, 0.4))  # inside the picture, whose shape stays as it is
    bar = axes.figure.colorbar(shown, cax=inset)
    outline: list[Any] = [withStroke(linewidth=2, foreground="black")]
    bar.set_label("m" if depth.metric else "relative depth", fontsize=7, color="white", path_effects=outline)
    inset.yaxis.set_ticks_position("left")
    inset.yaxis.set_label_position("left")
    inset.tick_params(labelsize=6, colors="white")
    for label in inset.get_yticklabels():
        label.set_path_effects(outline)


def _draw_generated(axes: Axes, image: GeneratedImage) -> None:
    right, bottom = axes.get_xlim()[1], axes.get_ylim()[0]
    axes.imshow(image.to_pil().convert("RGB"), interpolation="nearest", extent=(0, right, bottom, 0))


def _draw_classes(axes: Axes, classes: Classes) -> None:
    best = list(classes.probabilities.items())[:_BARS]
    lines = "\n".join(f"{label} {100 * probability:.1f} %" for label, probability in best)
    _label(axes, 0, 0, lines, "white")


def _label(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    box = {"facecolor": color, "edgecolor": "none", "pad": 1.5, "alpha": 0.85}
    axes.text(x, y, text, fontsize=7, va="top", ha="left", color="black", bbox=box, clip_on=True)


_DRAWINGS: dict[type, Any] = {
    Boxes: _draw_boxes,
    Masks: _draw_masks,
    Depth: _draw_depth,
    Classes: _draw_classes,
    GeneratedImage: _draw_generated,
}
