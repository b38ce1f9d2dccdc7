"""Attention maps as text for the terminal.

Each query is a row, each key a column of shaded cells; the best match stands at the end of the row. Shades go up to 1,
or to the largest weight where that is below a half. Column names are written downwards. If the map is wider than the
terminal, each row lists its three best matches instead. `text_heatmap` draws a map over an image, without names.
"""

from __future__ import annotations

from math import ceil
from unicodedata import combining, east_asian_width

import numpy as np

from regard.see.maps import MapLike, to_maps
from regard.see.token_display import truncate_middle

_SHADES = " ·░▒▓█"


def text_map(seen: MapLike, head: int | None = None, width: int = 80) -> str:
    """Return a map as text, at most `width` characters wide; `head` None: the mean over heads."""
    maps = to_maps(seen)
    weights = maps.map(head)
    rows, columns = [truncate_middle(t, 16) for t in maps.rows], [truncate_middle(t, 12) for t in maps.columns]
    left = max(map(display_width, rows))
    best = max(map(display_width, columns)) + 5
    if left + 2 + 2 * len(columns) + 2 + best > width:
        return "\n".join(_listed(rows, columns, weights, left))
    return "\n".join([*_heading(columns, left), *_shaded(rows, columns, weights, left)])


def text_heatmap(weights: np.ndarray, max_columns: int = 14) -> str:
    """Return a map Y X as shaded cells, at most `max_columns` on a side, from the smallest to the largest value.

    If possible a cell covers a whole number of rows and columns.
    """
    array = np.asarray(weights, dtype=np.float64)
    fold = max(1.0, max(array.shape) / max_columns)
    whole = (k for k in range(ceil(fold), int(2 * fold) + 1) if not any(n % k for n in array.shape))
    fold = next(whole, fold)
    rows, columns = (max(1, round(n / fold)) for n in array.shape)
    means = _average_rows(_average_rows(array, rows).T, columns).T
    low, high = float(means.min()), float(means.max())
    level = np.round((means - low) / ((high - low) or 1.0) * (len(_SHADES) - 1)).astype(int)
    return "\n".join(f"│{''.join(_SHADES[k] * 2 for k in row)}│" for row in level)


def _average_rows(array: np.ndarray, count: int) -> np.ndarray:
    """Average neighbouring rows into `count` groups."""
    return np.stack([some.mean(0) for some in np.array_split(array, count)])


def _heading(columns: list[str], left: int) -> list[str]:
    """Return the column names written downwards, bottom-aligned."""
    letters = [_cells(name) for name in columns]
    high = max(map(len, letters))
    lines = []
    for y in range(high):
        line = [word[y - high + len(word)] if y >= high - len(word) else "" for word in letters]
        lines.append((" " * (left + 2) + "".join(pad_to_width(cell, 2) for cell in line)).rstrip())
    return lines


def _shaded(rows: list[str], columns: list[str], weights: np.ndarray, left: int) -> list[str]:
    """Return a line per row: its name, its cells, its best match."""
    lines, darkest = [], 1.0 if weights.max() >= 0.5 or not weights.any() else float(weights.max())
    for name, row in zip(rows, weights, strict=True):
        level = np.clip(np.ceil(row / darkest * (len(_SHADES) - 1)), 0, len(_SHADES) - 1).astype(int)
        level[row < 0.02] = 0
        j = int(row.argmax())
        cells = "".join(_SHADES[k] * 2 for k in level)
        lines.append(f"{pad_to_width(name, left, right=True)} │{cells}│ {_match(columns[j], row[j])}")
    return lines


def _listed(rows: list[str], columns: list[str], weights: np.ndarray, left: int) -> list[str]:
    """Return a line per row: its name and its three best matches."""
    lines = []
    for name, row in zip(rows, weights, strict=True):
        top = [int(j) for j in np.argsort(-row, kind="stable")[:3] if row[j] >= 0.01]
        matches = "  ".join(_match(columns[j], row[j]) for j in top) or "nothing above 1 %"
        lines.append(f"{pad_to_width(name, left, right=True)} → {matches}")
    return lines


def _match(name: str, weight: float) -> str:
    return f"{name} {100 * weight:.0f}%"


def _cells(text: str) -> list[str]:
    """Split a text into characters, combining marks kept with their letter."""
    cells: list[str] = []
    for c in text:
        if cells and (combining(c) or c in "\u200d\ufe0e\ufe0f"):
            cells[-1] += c
        else:
            cells.append(c)
    return cells


def display_width(text: str) -> int:
    """Return the number of terminal columns a text takes."""
    return sum(2 if east_asian_width(cell[0]) in "WF" else 1 for cell in _cells(text))


def pad_to_width(text: str, width: int, right: bool = False) -> str:
    """Pad a text with spaces after it (`right`: before it) to `width` terminal columns."""
    space = " " * max(0, width - display_width(text))
    return space + text if right else text + space
