"""An alignment in the terminal, in plain characters: something to look at before any file is opened.

Each output word is a row, each input word a column of shaded cells, and the best match stands at the end of the row.
Column names are written downwards. Where the matrix is wider than the terminal, each row lists its best three instead.
`text_heatmap` draws a map over an image the same way, without names.
"""

from __future__ import annotations

from math import ceil
from unicodedata import combining, east_asian_width

import numpy as np

from regard.see.maps import MapLike, to_maps
from regard.see.token_display import truncate_middle

_SHADES = " ·░▒▓█"


def text_map(seen: MapLike, head: int | None = None, width: int = 80) -> str:
    """The drawing as lines of text; `head` by its number, None for the mean over heads; `width` in characters."""
    maps = to_maps(seen)
    weights = maps.map(head)
    rows, columns = [truncate_middle(t, 16) for t in maps.rows], [truncate_middle(t, 12) for t in maps.columns]
    left = max(map(display_width, rows))
    best = max(map(display_width, columns)) + 5
    if left + 2 + 2 * len(columns) + 2 + best > width:
        return "\n".join(_listed(rows, columns, weights, left))
    return "\n".join([*_heading(columns, left), *_shaded(rows, columns, weights, left)])


def text_heatmap(weights: np.ndarray, most: int = 14) -> str:
    """A map Y X as shaded cells, at most so many in a row, from where least is to where most is.

    Where that comes near enough, a cell is a whole number of rows and columns, so that patches stay of one size.
    """
    array = np.asarray(weights, dtype=np.float64)
    fold = max(1.0, max(array.shape) / most)
    whole = (k for k in range(ceil(fold), int(2 * fold) + 1) if not any(n % k for n in array.shape))
    fold = next(whole, fold)
    rows, columns = (max(1, round(n / fold)) for n in array.shape)
    means = _thinned(_thinned(array, rows).T, columns).T
    low, high = float(means.min()), float(means.max())
    level = np.round((means - low) / ((high - low) or 1.0) * (len(_SHADES) - 1)).astype(int)
    return "\n".join(f"│{''.join(_SHADES[k] * 2 for k in row)}│" for row in level)


def _thinned(array: np.ndarray, many: int) -> np.ndarray:
    """The means of so many groups of neighbouring rows."""
    return np.stack([some.mean(0) for some in np.array_split(array, many)])


def _heading(columns: list[str], left: int) -> list[str]:
    """The column names, written downwards and resting on the matrix."""
    letters = [_cells(name) for name in columns]
    high = max(map(len, letters))
    lines = []
    for y in range(high):
        line = [word[y - high + len(word)] if y >= high - len(word) else "" for word in letters]
        lines.append((" " * (left + 2) + "".join(pad_to_width(cell, 2) for cell in line)).rstrip())
    return lines


def _shaded(rows: list[str], columns: list[str], weights: np.ndarray, left: int) -> list[str]:
    """A line a row: its name, its cells, its best match."""
    lines = []
    for name, row in zip(rows, weights, strict=True):
        level = np.clip(np.ceil(row * (len(_SHADES) - 1)), 0, len(_SHADES) - 1).astype(int)
        level[row < 0.02] = 0
        j = int(row.argmax())
        lines.append(
            f"{pad_to_width(name, left, right=True)} │{''.join(_SHADES[k] * 2 for k in level)}│ {_match(columns[j], row[j])}"
        )
    return lines


def _listed(rows: list[str], columns: list[str], weights: np.ndarray, left: int) -> list[str]:
    """A line a row: its name and its best three matches."""
    lines = []
    for name, row in zip(rows, weights, strict=True):
        top = [int(j) for j in np.argsort(-row, kind="stable")[:3] if row[j] >= 0.01]
        said = "  ".join(_match(columns[j], row[j]) for j in top) or "nothing above 1 %"
        lines.append(f"{pad_to_width(name, left, right=True)} → {said}")
    return lines


def _match(name: str, weight: float) -> str:
    return f"{name} {100 * weight:.0f}%"


def _cells(text: str) -> list[str]:
    """The text in characters, marks kept with the letter they stand on."""
    cells: list[str] = []
    for c in text:
        if cells and (combining(c) or c in "\u200d\ufe0e\ufe0f"):
            cells[-1] += c
        else:
            cells.append(c)
    return cells


def display_width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(2 if east_asian_width(cell[0]) in "WF" else 1 for cell in _cells(text))


def pad_to_width(text: str, width: int, right: bool = False) -> str:
    """The text with spaces after it, or before it, as wide as that."""
    space = " " * max(0, width - display_width(text))
    return space + text if right else text + space
