"""Glimpses: the squares that a model looked at, numbered on the photo, and what it saw of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.see.overlay import as_rgb, draw_title, finish, wrap_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PHOTO, _SEEN, _GAP = 3.2, 0.7, 0.08  # inches


def glimpse_path(
    photo: Any,
    centres: np.ndarray,
    sides: Sequence[int],
    title: str = "",
    caption: str = "",
    seen: np.ndarray | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw squares of these sides (pixels) around centres T 2 (x, y in pixels from the corner); also save to `path`.

    `seen` T k g g holds what the model saw of each, drawn beside the photo, a row for each glimpse.
    """
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    from regard.see.layout import INK, MARGIN, MUTED_INK, Layout, font

    photo, centres = as_rgb(photo), np.asarray(centres, dtype=np.float64)
    if centres.ndim != 2 or centres.shape[1] != 2 or not len(centres) or not np.isfinite(centres).all() or not sides:
        raise BadInput("Expected finite centres, x and y of at least one glimpse, and the side of at least one square.")
    if seen is not None and seen.shape[:2] != (len(centres), len(sides)):
        raise BadInput(f"Expected what was seen of {len(centres)} glimpses in {len(sides)} squares, got {seen.shape}.")
    high, wide = photo.shape[:2]
    scale = _PHOTO / max(high, wide)
    height = high * scale
    columns = 0.0 if seen is None else 0.45 + len(sides) * (_SEEN + _GAP)
    cell = _SEEN if seen is None else min(_SEEN, (max(height, 2.4) + _GAP) / len(centres) - _GAP)
    full = 2 * MARGIN + wide * scale + columns
    lines = wrap_caption(caption, full - 2 * MARGIN)
    top = MARGIN + 0.4 + 0.16 * len(lines)
    layout = Layout(full, top + max(height, 0 if seen is None else len(centres) * (cell + _GAP)) + MARGIN)
    axes = layout.axes(MARGIN, top, wide * scale, height)
    axes.imshow(photo, extent=(0, wide, high, 0), interpolation="nearest" if max(high, wide) <= 96 else "antialiased")
    axes.plot(*centres.T, color="white", linewidth=2.2)
    axes.plot(*centres.T, color=INK, linewidth=0.8)
    for number, (x, y) in enumerate(centres, 1):
        colour = colormaps["viridis"](0.35 + 0.65 * (number - 1) / max(1, len(centres) - 1))
        for side in sides:
            corner = x - side / 2, y - side / 2
            axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=colour, linewidth=1.3))
        mark = {"boxstyle": "circle,pad=0.15", "facecolor": colour, "edgecolor": "none"}
        axes.text(x, y, str(number), font=font(7), color=INK, ha="center", va="center", bbox=mark, clip_on=True)
        if seen is None:
            continue
        for place, square in enumerate(seen[number - 1]):
            left = MARGIN + wide * scale + 0.45 + place * (_SEEN + _GAP)
            down = top + (number - 1) * (cell + _GAP)
            if not place:
                layout.text(left - 0.08, down + cell / 2 - 0.06, str(number), 8, MUTED_INK, align="right")
            layout.axes(left, down, cell, cell).imshow(square, cmap="gray", vmin=seen.min(), vmax=seen.max())
    axes.set(xlim=(0, wide), ylim=(high, 0))
    draw_title(layout, title, lines, full - 2 * MARGIN)
    return finish(layout.figure, path)
