"""Paths of aligners over their input: one in detail, or several side by side.

Rows are output steps from the top down, columns are input positions. Where an aligner has centres of its own (the κ of
a Gaussian mixture, the middle of a window) they are drawn over its weights; otherwise the path is the mean position
Σ m w_m / Σ w_m, with a gap where all weights are zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.core.errors import BadInput
from regard.see.grid import grid_columns, linear_norm, panel_size, sqrt_norm
from regard.see.layout import (
    MARGIN,
    MUTED_INK,
    Layout,
    draw_map,
    font,
    label_columns,
    label_rows,
    max_label_width,
    title_width,
)
from regard.see.maps import AttentionMaps, MapLike, to_maps
from regard.see.token_display import visible

_CELL, _MIN_SIDE, _MAX_SIDE = 0.3, 1.6, 9.0  # inches: a cell at most, a side at least and at most
_LINES = ("#4fd1ff", "#8dff8a", "#ffd24f", "#ff8ad8", "#b9a5ff", "#ffffff")  # bright: small weights are dark


def alignment_path(seen: MapLike, title: str | None = None) -> Figure:
    """Draw the path of an aligner over its weights, one line per centre."""
    maps = to_maps(seen)
    weights = maps.map()
    n, m = weights.shape
    width, height = _side(m), _side(n)
    left, top = MARGIN + max_label_width(maps.rows) + 0.32, MARGIN + 0.36
    bottom = max_label_width(maps.columns) + 0.45
    title = visible(title) if title else _title(maps)
    layout = Layout(max(left + width + 0.95, title_width(title)), top + height + bottom)

    norm = linear_norm([weights])
    axes = layout.axes(left, top, width, height)
    draw_map(axes, weights, norm)
    _draw_paths(axes, maps, 1.4)
    label_rows(axes, maps.rows, height / n)
    label_columns(axes, maps.columns, width / m, above=False)
    row_label, column_label = maps.sides
    axes.set_ylabel(row_label, font=font(8), color=MUTED_INK)
    axes.set_xlabel(column_label, font=font(8), color=MUTED_INK)
    layout.colorbar(left + width + 0.15, top, height, norm)
    layout.text(MARGIN, MARGIN, title, 11)
    return layout.figure


def compare_alignments(seen: Mapping[str, MapLike], title: str | None = None, lines: bool = False) -> Figure:
    """Draw several aligners side by side on one colour scale; with `lines`, their paths too."""
    if not isinstance(seen, Mapping) or not seen:
        raise BadInput(f"Expected a non-empty dict of name -> trace, got {type(seen).__name__}.")
    every = {visible(name): to_maps(one) for name, one in seen.items()}
    n, m = (max(maps.weights.shape[axis] for maps in every.values()) for axis in (1, 2))
    width, height, columns = max(panel_size(m), 1.4), max(panel_size(n), 1.4), grid_columns(len(every))
    lefts = MARGIN + max(max_label_width(maps.rows, 7) for maps in every.values()) + 0.12  # each map has its own labels
    below = max(max_label_width(maps.columns, 7) for maps in every.values()) + 0.2
    top, line = MARGIN + 0.4, 0.24  # line: the caption over each map
    full = columns * (lefts + width)
    down = line + height + below
    title = visible(title) if title else "the same output, aligned by each aligner"
    layout = Layout(max(full + 0.95, title_width(title)), top + -(-len(every) // columns) * down + MARGIN)

    norm = sqrt_norm([maps.weights for maps in every.values()])
    for k, (name, maps) in enumerate(every.items()):
        y, x = divmod(k, columns)
        place = x * (lefts + width) + lefts, top + y * down
        weights = maps.map()
        layout.text(place[0], place[1] + 0.04, name, 8)
        axes = layout.axes(place[0], place[1] + line, width, height)
        draw_map(axes, weights, norm)
        label_rows(axes, maps.rows, height / weights.shape[0], 7)
        label_columns(axes, maps.columns, width / weights.shape[1], 7, above=False)
        if lines:
            _draw_paths(axes, maps, 0.9)
    layout.colorbar(full + 0.18, top + line, height, norm)
    layout.text(MARGIN, MARGIN, title, 11)
    return layout.figure


def centre_paths(maps: AttentionMaps) -> np.ndarray:
    """Return the centres at each step (N P), in columns from 0; NaN where all weights are zero."""
    if maps.centres is not None:
        centres: np.ndarray = maps.centres.mean(0)
        return centres
    weights = np.clip(maps.map(), 0, None)
    total = weights.sum(-1, keepdims=True)
    mean = (weights @ np.arange(weights.shape[1], dtype=np.float32))[:, None]
    return np.divide(mean, total, out=np.full_like(total, np.nan), where=total > 1e-6)


def _draw_paths(axes: Axes, maps: AttentionMaps, wide: float) -> None:
    """Draw a line down the rows for each centre, without changing the limits of the axes."""
    n, m = maps.weights.shape[1:]
    for p, line in enumerate(centre_paths(maps).T):
        dot = "o" if n <= 60 else ""
        colour = _LINES[p % len(_LINES)]
        axes.plot(line, np.arange(n), color=colour, linewidth=wide, marker=dot, markersize=2.2 * wide)
    axes.set(xlim=(-0.5, m - 0.5), ylim=(n - 0.5, -0.5))


def _title(maps: AttentionMaps) -> str:
    count = 0 if maps.centres is None else maps.centres.shape[-1]
    what = "mean position" if not count else "centre" if count == 1 else f"{count} centres"
    return f"{maps.title or 'aligner'}, {what}"


def _side(count: int) -> float:
    return float(np.clip(count * _CELL, _MIN_SIDE, _MAX_SIDE))
