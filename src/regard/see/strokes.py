"""Handwriting: pen strokes, coloured by the attended character, and the weights of the attention window.

    strokes(lines)                           ink, one line below the other, on one scale
    strokes(lines, texts, windows)           every point in the colour of its attended character; below each line its
                                             map: characters down, pen points across

A line is an array T 3 of offsets (dx, dy, 1 where the pen is lifted after the point), y pointing down.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARGIN, _MAX_WIDTH, _MAX_SCALE = 0.2, 7.5, 0.9  # inches: around the ink, of a line, per unit of the strokes
_ROW = 0.17  # inches: a row of the map
_INK = 1.6  # points: stroke width


def strokes(
    lines: Sequence[np.ndarray],
    texts: Sequence[str] | None = None,
    windows: Sequence[np.ndarray] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw lines of handwriting; also save the figure to `path` if given.

    `windows` are arrays T U: a row per point, a column per character (and optionally one more for the end of the text).
    """
    from regard.see.layout import Layout

    placed = [_places(line) for line in lines]
    _check(placed, texts, windows)
    low, high = (np.array([fold(p, axis=0) for p in placed]) for fold in (np.min, np.max))  # lines 2
    span = np.maximum(high - low, 1e-6)
    scale = min(_MAX_SCALE, _MAX_WIDTH / span[:, 0].max())
    ink = (_INK if windows is None else 1.4) * max(0.3, min(1.0, 3 * scale / _MAX_SCALE))  # thinner where it is small
    left = _MARGIN if windows is None else _MARGIN + 0.35
    each = span[:, 1] * scale + 0.1
    maps = [0.0 if windows is None else _ROW * w.shape[1] + 0.35 for w in windows or [np.zeros((1, 1))] * len(lines)]
    width = max(span[:, 0].max() * scale, 1.5 if windows is None else 4.0)
    layout = Layout(left + width + _MARGIN, 2 * _MARGIN + sum(each) + sum(maps) + 0.12 * (len(lines) - 1))
    top = _MARGIN
    for i, line in enumerate(lines):
        wide = span[i, 0] * scale + 0.1
        axes = layout.axes(left - 0.05, top, wide, each[i])
        axes.set_axis_off()
        axes.set_xlim(low[i, 0] - 0.05 / scale, high[i, 0] + 0.05 / scale)
        axes.set_ylim(high[i, 1] + 0.05 / scale, low[i, 1] - 0.05 / scale)
        _ink(axes, placed[i], line[:, 2] > 0.5, None if windows is None else _owners(windows[i], texts, i), ink)
        top += each[i]
        if windows is not None:
            _map(layout.axes(left, top + 0.12, width, maps[i] - 0.3), windows[i], _names(windows[i], texts, i))
            top += maps[i]
        top += 0.12
    if path is not None:
        save(layout.figure, path)
    return layout.figure


def _places(line: np.ndarray) -> np.ndarray:
    """Return the pen position at each point: T 2."""
    if line.ndim != 2 or line.shape[1] != 3 or not len(line):
        raise BadInput(f"Expected a line of shape T 3 (dx, dy, pen lifted), got {line.shape}.")
    if not np.isfinite(line).all():
        raise BadInput("A line contains NaN or infinite numbers.")
    found: np.ndarray = line[:, :2].cumsum(0)
    return found


def _check(lines: list[np.ndarray], texts: Sequence[str] | None, windows: Sequence[np.ndarray] | None) -> None:
    if not lines:
        raise BadInput("Nothing to draw: `lines` is empty.")
    for name, values in (("texts", texts), ("windows", windows)):
        if values is not None and len(values) != len(lines):
            raise BadInput(f"Expected one of `{name}` per line, got {len(values)} for {len(lines)} lines.")
    for line, window in zip(lines, windows or (), strict=False):
        if window.ndim != 2 or len(window) != len(line) or not window.shape[1]:
            raise BadInput(
                f"Expected a window with one row per point, got shape {window.shape} for {len(line)} points."
            )


def _owners(window: np.ndarray, texts: Sequence[str] | None, i: int) -> np.ndarray:
    """Return the most attended character of each point, the end of the text excluded."""
    many = window.shape[1] if texts is None else min(len(texts[i]), window.shape[1])
    owners: np.ndarray = window[:, : max(many, 1)].argmax(1)
    return owners


def _names(window: np.ndarray, texts: Sequence[str] | None, i: int) -> list[str]:
    letters = [visible(c) for c in texts[i]] if texts is not None else [str(n) for n in range(window.shape[1])]
    return [*letters, *["end"] * (window.shape[1] - len(letters))][: window.shape[1]]


def _ink(axes: Axes, places: np.ndarray, lifted: np.ndarray, owners: np.ndarray | None, wide: float) -> None:
    """Draw strokes; a segment has the colour of the point it leads to."""
    from matplotlib.collections import LineCollection

    from regard.see.layout import INK, PALETTE

    colours = np.array([INK] * len(places) if owners is None else [PALETTE[o % len(PALETTE)] for o in owners])
    down = ~lifted[:-1]
    segments = np.stack([places[:-1], places[1:]], 1)[down]
    axes.add_collection(LineCollection(list(segments), colors=colours[1:][down], linewidths=wide, capstyle="round"))
    dots = lifted & np.concatenate([[True], lifted[:-1]])  # strokes of a single point
    axes.scatter(places[dots, 0], places[dots, 1], s=2 * wide, c=colours[dots], linewidths=0)


def _map(axes: Axes, window: np.ndarray, names: list[str]) -> None:
    from matplotlib.colors import Normalize

    from regard.see.layout import INK, MUTED_INK, draw_map, font, label_rows

    draw_map(axes, window.T, Normalize(0, max(float(window.max()), 1e-6)))
    label_rows(axes, names, _ROW, 8)
    axes.set_xlabel("pen points", font=font(7), color=MUTED_INK, labelpad=2)
    axes.xaxis.label.set_color(INK)
