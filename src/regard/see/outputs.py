"""Typed outputs over the picture they belong to: boxes, masks, depth, classes; an enlarged picture covers it. Labels of
points colour their cloud.

    draw_output(photo, boxes, path="boxes.png")

The kind of the output decides what is drawn. The labels of one output have distinct colours, the same for the same set
of labels. A legend above the picture names the colours of masks, and of boxes that are too many for a label each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import Unsupported
from regard.modalities.boxes import Boxes
from regard.modalities.classes import Classes
from regard.modalities.depth import Depth
from regard.modalities.generated_image import GeneratedImage
from regard.modalities.masks import Masks
from regard.modalities.point_cloud import PointCloud
from regard.modalities.point_labels import PointLabels
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
_TITLE, _ROW = 0.4, 0.19  # inches: height of the title, and of a row of the legend
_LABELLED_BOXES = 20  # boxes that have a label each; more are told by a legend


def label_colors(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour for every label, in alphabetical order of the labels; more than there are colours repeat them."""
    return {label: COLORS[n % len(COLORS)] for n, label in enumerate(sorted(set(labels)))}


def describe_kind(kind: Any) -> str:
    """Return a class of outputs in words: "classes", "token labels"."""
    return str(kind.kind).replace("_", " ")


def can_draw(output: Any) -> bool:
    """Return whether there is a drawing for an output over a picture."""
    return type(output) in _DRAWINGS


def is_drawable(item: Any) -> bool:
    """Return whether outputs can be drawn over an input: a picture, or a point cloud."""
    return hasattr(item, "convert") or isinstance(item, PointCloud)


def draw_output(photo: Any, output: Any, title: str = "", path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw an output over its picture (a PIL image or an array Y X C) or its `PointCloud`; with `path` also save it."""
    if isinstance(photo, PointCloud):
        return _draw_points(photo, output, title, path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not can_draw(output):
        known = ", ".join(map(describe_kind, _DRAWINGS))
        what = describe_kind(type(output))
        raise Unsupported(f"There is no drawing of {what} over a picture; there is one of {known}.")
    pixels = np.asarray(photo.convert("RGB") if hasattr(photo, "convert") else photo)
    height, width = pixels.shape[:2]
    inches = _LONG / max(height, width)
    wide, high = width * inches, height * inches
    legend = _legend_rows(_legend(output), wide)
    header = (_TITLE if title else 0.0) + _ROW * len(legend)
    figure = Figure(figsize=(wide, high + header), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, high / (high + header)))
    axes.imshow(pixels, interpolation="nearest", extent=(0, width, height, 0))
    axes.set_axis_off()
    _DRAWINGS[type(output)](axes, output)
    if isinstance(output, (Boxes, Masks)) and not len(output):
        _label(axes, 0, 0, "nothing found", "white")
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    _draw_legend(figure, legend, high + _ROW * len(legend), wide, high + header)
    if title:
        figure.suptitle(title, fontsize=9, y=0.99)
    if path is not None:
        save(figure, path)
    return figure


def _draw_points(cloud: PointCloud, output: Any, title: str, path: str | os.PathLike[str] | None) -> Figure:
    from regard.see.point_cloud import point_cloud

    points = cloud.points[cloud.given].numpy()
    if isinstance(output, PointLabels):
        return point_cloud(points, output.labels.numpy(), title, "", output.names, path)
    if isinstance(output, Classes):
        best = list(output.probabilities.items())[:_BARS]
        caption = "   ".join(f"{label} {100 * probability:.1f} %" for label, probability in best)
        return point_cloud(points, None, title, caption, path=path)
    raise Unsupported(f"There is no drawing of {describe_kind(type(output))} over a point cloud.")


def _legend(output: Any) -> list[tuple[str, str]]:
    """Return text and colour of the entries of an output's legend: its labels, with how many segments each has."""
    if not isinstance(output, (Boxes, Masks)) or (isinstance(output, Boxes) and len(output) <= _LABELLED_BOXES):
        return []
    counts = Counter(each.label for each in (output.boxes if isinstance(output, Boxes) else output.masks))
    colors = label_colors(counts)
    return [(label if counts[label] == 1 else f"{label} × {counts[label]}", colors[label]) for label in sorted(counts)]


def _legend_rows(entries: list[tuple[str, str]], wide: float) -> list[list[tuple[float, str, str]]]:
    """Return the rows of a legend of this width: where each entry begins, in inches, its text and its colour."""
    rows, x = list[list[tuple[float, str, str]]](), wide
    for text, color in entries:
        length = 0.3 + 0.065 * len(text)
        if x + length > wide:
            rows, x = [*rows, []], 0.06
        rows[-1].append((x, text, color))
        x += length
    return rows


def _draw_legend(figure: Figure, rows: Any, top: float, wide: float, high: float) -> None:
    """Draw the rows of a legend from `top`, in inches above the bottom of a figure of `wide` by `high` inches."""
    from matplotlib.patches import Rectangle

    for n, row in enumerate(rows):
        middle = top - _ROW * (n + 0.5)
        for x, text, color in row:
            corner = x / wide, (middle - 0.055) / high
            figure.add_artist(Rectangle(corner, 0.11 / wide, 0.11 / high, facecolor=color, edgecolor="none"))
            figure.text((x + 0.16) / wide, middle / high, text, fontsize=7, va="center", ha="left")


def _draw_boxes(axes: Axes, boxes: Boxes) -> None:
    from matplotlib.patches import Rectangle

    colors = label_colors(box.label for box in boxes.boxes)
    for box in reversed(boxes.boxes):  # the most certain on top
        color = colors[box.label]
        size = box.right - box.left, box.bottom - box.top
        axes.add_patch(Rectangle((box.left, box.top), *size, fill=False, edgecolor=color, linewidth=1.8))
        if len(boxes) <= _LABELLED_BOXES:
            _label(axes, box.left, box.top, f"{box.label} {100 * box.score:.0f} %", color)


def _draw_masks(axes: Axes, masks: Masks) -> None:
    """Draw every mask in its colour, with an edge that tells segments of one label apart."""
    from matplotlib.colors import to_rgb

    colors = label_colors(mask.label for mask in masks.masks)
    layer = np.zeros((masks.height, masks.width, 4), np.float32)
    for mask in reversed(masks.masks):
        color = to_rgb(colors[mask.label])
        layer[mask.pixels] = (*color, 0.5)
        layer[_edge(mask.pixels)] = (*(0.7 * np.array(color)), 0.9)
    axes.imshow(layer, interpolation="nearest", extent=(0, masks.width, masks.height, 0))


def _edge(mask: np.ndarray) -> np.ndarray:
    """Return the pixels of a mask that have a neighbour outside it; the edge of the picture is none."""
    padded = np.pad(mask, 1, mode="edge")
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inner


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
