"""Handwriting as a picture: the pen's strokes, coloured by the character that was looked at, and the window's weights.

    strokes(lines)                           ink, one line below the other, all to one scale
    strokes(lines, texts, windows)           every point in the colour of the character its window was on; below each
                                             line a map: characters downwards, points of the pen to the right

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

_MARGIN, _WIDE, _TALLEST = 0.2, 7.5, 0.9  # inches: around the ink, the widest line, a character's height at most
_ROW = 0.17  # inches of the map, for a character
_INK = 1.6  # points: the width of a stroke that stands alone


def strokes(
    lines: Sequence[np.ndarray],
    texts: Sequence[str] | None = None,
    windows: Sequence[np.ndarray] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """The figure of some lines; `windows` are arrays T U, a row for each point, a column for each character of the text
    (and, where there is one more, for its end). Also written to `alignment_path`."""
    from regard.see.layout import Layout

    placed = [_places(line) for line in lines]
    _check(placed, texts, windows)
    low, high = (np.array([fold(p, axis=0) for p in placed]) for fold in (np.min, np.max))  # lines 2
    span = np.maximum(high - low, 1e-6)
    scale = min(_TALLEST, _WIDE / span[:, 0].max())
    ink = (_INK if windows is None else 1.4) * max(0.3, min(1.0, 3 * scale / _TALLEST))  # thinner where it is small
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
    """Where the pen is at each point: T 2."""
    if line.ndim != 2 or line.shape[1] != 3 or not len(line):
        raise BadInput(f"a line to draw is an array of points and 3 columns (dx, dy, lifted), not of {line.shape}")
    if not np.isfinite(line).all():
        raise BadInput("a line to draw has numbers that are not finite")
    found: np.ndarray = line[:, :2].cumsum(0)
    return found


def _check(lines: list[np.ndarray], texts: Sequence[str] | None, windows: Sequence[np.ndarray] | None) -> None:
    if not lines:
        raise BadInput("there is no line to draw")
    for what, given in (("texts", texts), ("windows", windows)):
        if given is not None and len(given) != len(lines):
            raise BadInput(f"{len(given)} {what} for {len(lines)} lines: give one each")
    for line, window in zip(lines, windows or (), strict=False):
        if window.ndim != 2 or len(window) != len(line) or not window.shape[1]:
            raise BadInput(f"a window of shape {window.shape} for {len(line)} points: give a row for each point")


def _owners(window: np.ndarray, texts: Sequence[str] | None, i: int) -> np.ndarray:
    """Which character each point belongs to; the end owns none."""
    many = window.shape[1] if texts is None else min(len(texts[i]), window.shape[1])
    owners: np.ndarray = window[:, : max(many, 1)].argmax(1)
    return owners


def _names(window: np.ndarray, texts: Sequence[str] | None, i: int) -> list[str]:
    letters = [visible(c) for c in texts[i]] if texts is not None else [str(n) for n in range(window.shape[1])]
    return [*letters, *["end"] * (window.shape[1] - len(letters))][: window.shape[1]]


def _ink(axes: Axes, places: np.ndarray, lifted: np.ndarray, owners: np.ndarray | None, wide: float) -> None:
    """Strokes; a piece between two points has the colour of the point it leads to."""
    from matplotlib.collections import LineCollection

    from regard.see.layout import INK, PALETTE

    colours = np.array([INK] * len(places) if owners is None else [PALETTE[o % len(PALETTE)] for o in owners])
    down = ~lifted[:-1]
    pieces = np.stack([places[:-1], places[1:]], 1)[down]
    axes.add_collection(LineCollection(list(pieces), colors=colours[1:][down], linewidths=wide, capstyle="round"))
    dots = lifted & np.concatenate([[True], lifted[:-1]])  # the pen came down and went up again
    axes.scatter(places[dots, 0], places[dots, 1], s=2 * wide, c=colours[dots], linewidths=0)


def _map(axes: Axes, window: np.ndarray, names: list[str]) -> None:
    from matplotlib.colors import Normalize

    from regard.see.layout import INK, MUTED_INK, draw_map, font, label_rows

    draw_map(axes, window.T, Normalize(0, max(float(window.max()), 1e-6)))
    label_rows(axes, names, _ROW, 8)
    axes.set_xlabel("points of the pen", font=font(7), color=MUTED_INK, labelpad=2)
    axes.xaxis.label.set_color(INK)
