"""Maps over photos: one large map next to the photo, or many small ones on one colour scale.

    overlay(photo, weights)             the photo, and the map over it
    overlay_grid(photo, maps)           one small map each: heads, or layers (down) and heads (across)

The photo is drawn in grey under the map. A map may be coarser than the photo: its cells keep hard edges, since
smoothing would suggest detail that was not measured. Colours run from the smallest to the largest value shown.
Attention is given in multiples of uniform attention: at 1 a cell gets what uniform weights would give it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

OutlinedBox = tuple[tuple[float, float, float, float], str]  # left, top, right, bottom as fractions; a colour
NO_BOXES: Mapping[str, Sequence[OutlinedBox]] = {}
TIMES_UNIFORM = "× uniform attention"
SHARE_OF_MAX = "fraction of the maximum"
_LARGE, _GAP = 3.6, 0.2  # inches: the longer side of a large picture, and between pictures
_SMALL, _MAX_WIDTH = 1.5, 12.0  # inches: a small picture at most, and all of them together
_LINE = 0.16  # inches: line height of the caption
_MIN_ALPHA, _MAX_ALPHA = 0.5, 0.8  # opacity of the smallest and largest value
_RING = "#38c7b4"  # marks the query position; stands out on magma


def relative_to_uniform(weights: np.ndarray, uniform: float | None = None) -> np.ndarray:
    """Return a map in multiples of the weight a cell would get from uniform attention.

    That weight is `uniform` (`PixelAttribution.uniform_weight`); None: one over the number of cells.
    """
    return np.asarray(weights) * (weights.shape[-1] * weights.shape[-2] if uniform is None else 1 / uniform)


def relative_to_max(weights: np.ndarray) -> np.ndarray:
    """Return a map divided by its largest value; all zeros stay zeros."""
    most = float(np.max(weights)) if np.size(weights) else 0.0
    return np.asarray(weights) / (most or 1.0)


def overlay(
    photo: Any,
    weights: np.ndarray,
    title: str = "",
    caption: str = "",
    unit: str = TIMES_UNIFORM,
    place: tuple[float, float] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw the photo and the map over it; also save the figure to `path` if given.

    `place` (fractions of height and width) is marked with a ring.
    """
    from matplotlib.colors import Normalize

    from regard.see.layout import INK, MARGIN, MUTED_INK, Layout, font

    photo, weights = as_rgb(photo), _map(weights)
    width, height = _sides(photo, _LARGE)
    left = MARGIN + 0.35
    full = left + 2 * width + _GAP
    inner = full + 0.85 - 2 * MARGIN
    lines = wrap_caption(caption, inner)
    top = MARGIN + 0.36 + (0.04 + _LINE * len(lines) if lines else 0.0)
    layout = Layout(full + 0.85, top + height + 0.35)
    norm = Normalize(*_span([weights]))
    for x, layer in ((left, None), (left + width + _GAP, weights)):
        axes = layout.axes(x, top, width, height)
        _draw_overlay(axes, photo, layer, norm, place)
        high, wide = photo.shape[:2]
        axes.set_xticks(_ticks(wide), map(str, _ticks(wide)), font=font(7), color=INK)
        axes.tick_params(length=2, width=0.5, color=MUTED_INK)
        if layer is None:
            axes.set_yticks(_ticks(high), map(str, _ticks(high)), font=font(7), color=INK)
    layout.colorbar(full + 0.12, top, height, norm, unit)
    draw_title(layout, title, lines, inner)
    return finish(layout.figure, path)


def overlay_grid(
    photo: Any,
    maps: Mapping[str, np.ndarray | None] | Sequence[tuple[str, Mapping[str, np.ndarray | None]]],
    title: str = "",
    caption: str = "",
    unit: str = TIMES_UNIFORM,
    place: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    path: str | os.PathLike[str] | None = None,
    boxes: Mapping[str, Sequence[OutlinedBox]] = NO_BOXES,
) -> Figure:
    """Draw small maps over one photo, on one colour scale: {name: Y X}, or a list of rows (name, {name: Y X}).

    In place of a map, None stands for the photo itself. `place` may be one for each name, and so are the `boxes`.
    """
    from matplotlib.colors import PowerNorm

    from regard.see.grid import grid_columns
    from regard.see.layout import MARGIN, Layout, max_label_width

    photo = as_rgb(photo)
    rows = _rows(maps, grid_columns)
    most = max(len(row) for _, row in rows)
    names = [name for name, _ in rows if name]
    label_width = max_label_width(names, 8) + 0.12 if names else 0.0
    long = min(_SMALL, (_MAX_WIDTH - label_width) / most * 1.05)
    width, height = _sides(photo, long)
    line, gap = (0.2, 0.08) if most <= 12 else (0.14, 0.03)
    left = MARGIN + label_width
    full = left + most * (width + gap) - gap
    inner = max(full + 0.85, 3.2) - 2 * MARGIN
    lines = wrap_caption(caption, inner)
    top = MARGIN + 0.36 + (0.04 + _LINE * len(lines) if lines else 0.0)
    whole = len(rows) * (height + line + gap) - gap
    layout = Layout(max(full + 0.85, 3.2), top + whole + MARGIN)
    norm = PowerNorm(0.5, *_span([weights for _, row in rows for weights in row.values() if weights is not None]))
    for y, (name, row) in enumerate(rows):
        down = top + y * (height + line + gap)
        layout.text(left - 0.1, down + line + height / 2 - 0.06, name, 8, align="right") if name else None
        for x, (head, weights) in enumerate(row.items()):
            at = left + x * (width + gap)
            layout.text(at, down + 0.03, head, 8 if most <= 12 else 5)
            axes = layout.axes(at, down + line, width, height)
            _draw_overlay(axes, photo, weights, norm, place.get(head) if isinstance(place, Mapping) else place)
            _outline(axes, boxes.get(head, ()), photo.shape)
    layout.colorbar(full + 0.12, top + line, min(whole - line, 6.0), norm, unit)
    draw_title(layout, title, lines, inner)
    return finish(layout.figure, path)


def _rows(maps: Any, across_of: Any) -> list[tuple[str, dict[str, np.ndarray | None]]]:
    """Validate the maps and arrange them in rows."""
    if isinstance(maps, Mapping):
        every, across = list(maps.items()), across_of(max(len(maps), 1))
        maps = [("", dict(every[i : i + across])) for i in range(0, len(every), across)]
    rows = [
        (visible(name) if name else "", {k: None if w is None else _map(w) for k, w in row.items()})
        for name, row in maps
    ]
    if not rows or not all(row for _, row in rows) or all(w is None for _, row in rows for w in row.values()):
        raise BadInput("Nothing to draw: `maps` is empty.")
    return rows


def as_rgb(photo: Any) -> np.ndarray:
    """Return a photo (grey, RGB or RGBA) as uint8 Y X 3."""
    array = np.asarray(photo)
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = np.repeat(array, 3, 2)
    if array.ndim != 3 or array.shape[2] not in (3, 4) or array.dtype != np.uint8 or not array.size:
        raise BadInput(f"Expected a uint8 photo of shape Y X 3, got {array.dtype} of shape {array.shape}.")
    return array[:, :, :3]


def _map(weights: Any) -> np.ndarray:
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise BadInput(f"Expected a map of shape Y X, got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise BadInput("The map contains NaN or infinite weights.")
    return array


def _span(maps: list[np.ndarray]) -> tuple[float, float]:
    """Return the smallest and the largest value; widen an empty range."""
    low, high = float(min(w.min() for w in maps)), float(max(w.max() for w in maps))
    return low, high if high - low > 1e-6 * max(abs(high), 1e-30) else low + (abs(low) or 1.0)


def _draw_overlay(axes: Axes, photo: np.ndarray, weights: np.ndarray | None, norm: Normalize, place: Any) -> None:
    """Draw the photo, in grey under a map if there is one, and a ring at `place`."""
    from matplotlib import colormaps

    from regard.see.layout import COLORMAP

    high, wide = photo.shape[:2]
    span = (-0.5, wide - 0.5, high - 0.5, -0.5)
    kind = "nearest" if max(high, wide) <= 96 else "antialiased"
    if weights is None:
        axes.imshow(photo, extent=span, interpolation=kind)
    else:
        grey = 25 + 0.9 * (photo @ np.array([0.299, 0.587, 0.114]))
        axes.imshow(grey.astype(np.uint8), cmap="gray", vmin=0, vmax=255, extent=span, interpolation=kind)
        level = np.clip(np.asarray(norm(weights), dtype=np.float64), 0, 1)
        colours = colormaps[COLORMAP](level, bytes=True)
        colours[..., 3] = 255 * (_MIN_ALPHA + (_MAX_ALPHA - _MIN_ALPHA) * level)
        axes.imshow(colours, extent=span, interpolation="nearest" if max(weights.shape) <= 400 else "antialiased")
    if place is not None:
        y, x = place[0] * high - 0.5, place[1] * wide - 0.5
        axes.plot([x], [y], "o", markersize=7, markerfacecolor="none", markeredgecolor="white", markeredgewidth=2.4)
        axes.plot([x], [y], "o", markersize=7, markerfacecolor="none", markeredgecolor=_RING, markeredgewidth=1.2)


def _outline(axes: Axes, boxes: Sequence[OutlinedBox], shape: Sequence[int]) -> None:
    """Draw boxes over a photo of this shape."""
    from matplotlib.patches import Rectangle

    high, wide = shape[:2]
    for (left, top, right, bottom), color in boxes:
        corner, size = (left * wide - 0.5, top * high - 0.5), ((right - left) * wide, (bottom - top) * high)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=color, linewidth=1.4))


def _sides(photo: np.ndarray, long: float) -> tuple[float, float]:
    """Return width and height in inches, the longer being `long` and the shorter at least an eighth of it."""
    high, wide = photo.shape[:2]
    scale = long / max(high, wide)
    return max(wide * scale, long / 8), max(high * scale, long / 8)


def _ticks(count: int) -> list[int]:
    """Return at most about six round tick positions in pixels."""
    step = next(s for s in (1, 2, 4, 8, 16, 32, 56, 64, 128, 256, 512, 1024, 4096) if count / s <= 6 or s == 4096)
    return list(range(0, count, step))


def wrap_caption(text: str, width: float, size: float = 8) -> list[str]:
    """Break a text into lines of at most `width` inches."""
    from textwrap import wrap

    from regard.see.layout import max_label_width

    return wrap(visible(text), max(8, int(width / max_label_width(["n"], size)))) if text else []


def draw_title(layout: Any, title: str, lines: Sequence[str], width: float) -> None:
    """Draw a title and the lines of a caption under it."""
    from regard.see.layout import MARGIN, MUTED_INK, truncate_to_width

    layout.text(MARGIN, MARGIN, truncate_to_width(visible(title), width) if title else "", 11)
    for number, line in enumerate(lines):
        layout.text(MARGIN, MARGIN + 0.25 + _LINE * number, line, 8, MUTED_INK)


def finish(figure: Figure, path: str | os.PathLike[str] | None) -> Figure:
    """Return the figure, saved to `path` if given."""
    if path is not None:
        save(figure, path)
    return figure
