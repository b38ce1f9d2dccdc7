"""Maps over photos: one large beside the photo, or many small ones on one scale.

    overlay(photo, weights)             the photo, and the map over it
    overlays(photo, maps)               a map each: heads, or layers downwards and heads across

The photo turns grey, and the map lies over it in the colours of all maps, dark where it is least. A map may be coarser
than the photo: each of its cells then covers what it stands for, and edges stay hard, so that nobody takes a smooth
hill for something that was measured. Colours run from the least to the most of what is shown; the bar says how much
that is. Attention is told in multiples of an even look: at 1 a cell gets what it would get if all were looked at alike.
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

TIMES_UNIFORM = "× an even look"
SHARE_OF_MAX = "share of the largest"
_LONG, _GAP = 3.6, 0.2  # inches: the longer side of a large picture, and between pictures
_SMALL, _WIDEST = 1.5, 12.0  # of a small one at most, and of all of them together
_LINE = 0.16  # from one line under the title to the next
_FAINT, _STRONG = 0.5, 0.8  # how opaque the map is at its least and at its most
_RING = "#38c7b4"  # the place that is asked about, on magma


def relative_to_uniform(weights: np.ndarray, one: float | None = None) -> np.ndarray:
    """A map of shares as multiples of what every cell would get if all were looked at alike.

    That is `one`, of a look at an image `PixelAttribution.even()`; None: all cells together get the whole of it.
    """
    return np.asarray(weights) * (weights.shape[-1] * weights.shape[-2] if one is None else 1 / one)


def relative_to_max(weights: np.ndarray) -> np.ndarray:
    """A map as shares of its largest value; all 0 stays all 0."""
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
    """The photo and the map over it; `place` (shares of height and width) gets a ring. Also written to `alignment_path`."""
    from matplotlib.colors import Normalize

    from regard.see.layout import INK, MARGIN, MUTED_INK, Layout, font

    photo, weights = _photo(photo), _map(weights)
    width, height = _sides(photo, _LONG)
    left = MARGIN + 0.35
    full = left + 2 * width + _GAP
    room = full + 0.85 - 2 * MARGIN
    under = _broken(caption, room, 8)
    top = MARGIN + 0.36 + (0.04 + _LINE * len(under) if under else 0.0)
    layout = Layout(full + 0.85, top + height + 0.35)
    norm = Normalize(*_span([weights]))
    for x, laid in ((left, None), (left + width + _GAP, weights)):
        axes = layout.axes(x, top, width, height)
        _lay(axes, photo, laid, norm, place)
        high, wide = photo.shape[:2]
        axes.set_xticks(_ticks(wide), map(str, _ticks(wide)), font=font(7), color=INK)
        axes.tick_params(length=2, width=0.5, color=MUTED_INK)
        if laid is None:
            axes.set_yticks(_ticks(high), map(str, _ticks(high)), font=font(7), color=INK)
    layout.colorbar(full + 0.12, top, height, norm, unit)
    _head(layout, title, under, room)
    return _done(layout.figure, path)


def overlay_grid(
    photo: Any,
    maps: Mapping[str, np.ndarray] | Sequence[tuple[str, Mapping[str, np.ndarray]]],
    title: str = "",
    caption: str = "",
    unit: str = TIMES_UNIFORM,
    place: tuple[float, float] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Many small maps over one photo, on one scale: {name: Y X}, or rows of those, [(name of the row, {name: Y X})]."""
    from matplotlib.colors import PowerNorm

    from regard.see.grid import grid_columns
    from regard.see.layout import MARGIN, Layout, max_label_width

    photo = _photo(photo)
    rows = _rows(maps, grid_columns)
    most = max(len(row) for _, row in rows)
    beside = max_label_width([name for name, _ in rows if name], 8) + 0.12 if any(name for name, _ in rows) else 0.0
    long = min(_SMALL, (_WIDEST - beside) / most * 1.05)
    width, height = _sides(photo, long)
    line, gap = (0.2, 0.08) if most <= 12 else (0.14, 0.03)
    left = MARGIN + beside
    full = left + most * (width + gap) - gap
    room = max(full + 0.85, 3.2) - 2 * MARGIN
    under = _broken(caption, room, 8)
    top = MARGIN + 0.36 + (0.04 + _LINE * len(under) if under else 0.0)
    whole = len(rows) * (height + line + gap) - gap
    layout = Layout(max(full + 0.85, 3.2), top + whole + MARGIN)
    norm = PowerNorm(0.5, *_span([weights for _, row in rows for weights in row.values()]))
    for y, (name, row) in enumerate(rows):
        down = top + y * (height + line + gap)
        layout.text(left - 0.1, down + line + height / 2 - 0.06, name, 8, align="right") if name else None
        for x, (head, weights) in enumerate(row.items()):
            at = left + x * (width + gap)
            layout.text(at, down + 0.03, head, 8 if most <= 12 else 5)
            _lay(layout.axes(at, down + line, width, height), photo, weights, norm, place)
    layout.colorbar(full + 0.12, top + line, min(whole - line, 6.0), norm, unit)
    _head(layout, title, under, room)
    return _done(layout.figure, path)


def _rows(maps: Any, across_of: Any) -> list[tuple[str, dict[str, np.ndarray]]]:
    """The small maps row by row, checked; bare ones are broken into lines."""
    if isinstance(maps, Mapping):
        every, across = list(maps.items()), across_of(max(len(maps), 1))
        maps = [("", dict(every[i : i + across])) for i in range(0, len(every), across)]
    rows = [(visible(name) if name else "", {k: _map(w) for k, w in row.items()}) for name, row in maps]
    if not rows or not all(row for _, row in rows):
        raise BadInput("there is no map to draw")
    return rows


def _photo(photo: Any) -> np.ndarray:
    """A photo as Y X 3 of 0 to 255; grey ones too, and whatever numpy makes an array of."""
    array = np.asarray(photo)
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = np.repeat(array, 3, 2)
    if array.ndim != 3 or array.shape[2] not in (3, 4) or array.dtype != np.uint8 or not array.size:
        raise BadInput(f"a photo is bytes in rows, columns and 3 colours, not {array.dtype} of shape {array.shape}")
    return array[:, :, :3]


def _map(weights: Any) -> np.ndarray:
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise BadInput(f"a map over a photo has rows and columns, this one is of shape {array.shape}")
    if not np.isfinite(array).all():
        raise BadInput("the map holds NaN or infinite weights; look for what made them before drawing")
    return array


def _span(maps: list[np.ndarray]) -> tuple[float, float]:
    """The least and the most; where all is even, it is drawn dark."""
    low, high = float(min(w.min() for w in maps)), float(max(w.max() for w in maps))
    return low, high if high - low > 1e-6 * max(abs(high), 1e-30) else low + (abs(low) or 1.0)


def _lay(axes: Axes, photo: np.ndarray, weights: np.ndarray | None, norm: Normalize, place: Any) -> None:
    """The photo, pale under a map where there is one, and a ring at a place."""
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
        colours[..., 3] = 255 * (_FAINT + (_STRONG - _FAINT) * level)
        axes.imshow(colours, extent=span, interpolation="nearest" if max(weights.shape) <= 400 else "antialiased")
    if place is not None:
        y, x = place[0] * high - 0.5, place[1] * wide - 0.5
        axes.plot([x], [y], "o", markersize=7, markerfacecolor="none", markeredgecolor="white", markeredgewidth=2.4)
        axes.plot([x], [y], "o", markersize=7, markerfacecolor="none", markeredgecolor=_RING, markeredgewidth=1.2)


def _sides(photo: np.ndarray, long: float) -> tuple[float, float]:
    """Width and height in inches of a picture whose longer side is so long; very narrow ones are made wider."""
    high, wide = photo.shape[:2]
    scale = long / max(high, wide)
    return max(wide * scale, long / 8), max(high * scale, long / 8)


def _ticks(count: int) -> list[int]:
    """A few round numbers of pixels."""
    step = next(s for s in (1, 2, 4, 8, 16, 32, 56, 64, 128, 256, 512, 1024, 4096) if count / s <= 6 or s == 4096)
    return list(range(0, count, step))


def _fitting(text: str, room: float, size: float) -> str:
    """A line that goes into so many inches."""
    from regard.see.layout import max_label_width

    many = int(room / max_label_width(["n"], size))
    shown = visible(text) if text else ""
    return shown if len(shown) <= many else f"{shown[: many - 1].rstrip()}…"


def _broken(text: str, room: float, size: float) -> list[str]:
    """A text in as many lines as it takes in so many inches: what is said under a title is said whole."""
    from textwrap import wrap

    from regard.see.layout import max_label_width

    return wrap(visible(text), max(8, int(room / max_label_width(["n"], size)))) if text else []


def _head(layout: Any, title: str, under: Sequence[str], room: float) -> None:
    from regard.see.layout import MARGIN, MUTED_INK

    layout.text(MARGIN, MARGIN, _fitting(title, room, 11), 11)
    for number, line in enumerate(under):
        layout.text(MARGIN, MARGIN + 0.25 + _LINE * number, line, 8, MUTED_INK)


def _done(figure: Figure, path: str | os.PathLike[str] | None) -> Figure:
    if path is not None:
        save(figure, path)
    return figure
