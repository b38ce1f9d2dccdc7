"""Masks in COCO's notations: polygons, run lengths, and run lengths packed into letters.

    polygons    [[x, y, x, y, ...], ...]                    the union of all; fewer than three points enclose nothing
    counts      {"size": [rows, columns], "counts": [...]}  zeros first, column by column
    letters     {"size": ..., "counts": "Q2eY1..."}         the differences of counts, 5 bits in a letter

A polygon is filled by COCO's rule, to the pixel: its outline is traced on a grid five times as fine, and the points
where it crosses the middle of a column switch the pixels below on or off.

Lin et al.: Microsoft COCO. ECCV 2014. arXiv:1405.0312; the rules are those of its API (maskApi.c)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.core.errors import BadInput
from regard.modalities.masks import decode_runs

FINE = 5  # steps per pixel of a polygon's outline


def decode_segmentation(shape: Any, height: int, width: int) -> np.ndarray:
    """Return the mask (rows by columns) of a segmentation in any of COCO's notations."""
    if isinstance(shape, dict):
        size, counts = shape.get("size"), shape.get("counts")
        if not isinstance(size, list) or size != [height, width]:
            raise BadInput(f"A mask has the size {size}; the image has [{height}, {width}] rows and columns.")
        if isinstance(counts, str):
            counts = unpack_counts(counts)
        if not isinstance(counts, list) or not all(isinstance(count, int) for count in counts):
            raise BadInput("Run lengths must be a list of whole numbers, or COCO's string of letters.")
        return decode_runs(counts, height, width)
    if not isinstance(shape, list):
        raise BadInput(f"A segmentation must be polygons or run lengths, got {type(shape).__name__}.")
    found = np.zeros((height, width), bool)
    for polygon in shape:
        found |= fill_polygon(polygon, height, width)
    return found


def unpack_counts(letters: str) -> list[int]:
    """Return the run lengths in a string of letters.

    Each number is written in groups of 5 bits, lowest first, one letter from "0" on for each; the sixth bit says that
    more follow, and the highest bit of the last group is the sign. From the fourth number on it is the difference to
    the number before the last.
    """
    counts: list[int] = []
    value = shift = 0
    for letter in letters:
        group = ord(letter) - 48
        if not 0 <= group < 64:
            raise BadInput(f"Run lengths cannot have the letter {letter!r}.")
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    if shift:
        raise BadInput("The letters of the run lengths end within a number.")
    return counts


def fill_polygon(polygon: Any, height: int, width: int) -> np.ndarray:
    """Return the mask of one polygon [x, y, x, y, ...], in pixels."""
    if (
        not isinstance(polygon, list)
        or len(polygon) % 2
        or not all(isinstance(x, (int, float)) and math.isfinite(x) and abs(x) < 2**24 for x in polygon)
    ):
        raise BadInput(f"A polygon must be a list of x, y, x, y, ... in pixels, got {str(polygon)[:60]}.")
    if len(polygon) < 6:
        return np.zeros((height, width), bool)
    corners = np.trunc(FINE * np.array(polygon, np.float64).reshape(-1, 2) + 0.5).astype(np.int64)
    outline = np.concatenate([_line(a, b) for a, b in zip(corners, np.roll(corners, -1, 0), strict=True)])
    (u, v), (before_u, before_v) = outline[1:].T, outline[:-1].T
    column = (np.where(u < before_u, u, u - 1) + 0.5) / FINE - 0.5
    row = np.ceil(((np.minimum(v, before_v) + 0.5) / FINE - 0.5).clip(0, height)).astype(np.int64)
    crosses = (u != before_u) & (column == np.floor(column)) & (column >= 0) & (column <= width - 1)
    switches = column[crosses].astype(np.int64) * height + row[crosses]
    switched = np.bincount(switches, minlength=height * width + 1)[: height * width]
    return (np.cumsum(switched) % 2 == 1).reshape((height, width), order="F")


def _line(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the points of the grid on the way from start to end: one for each step of the longer side."""
    steps = np.abs(end - start)
    long = int(steps[0] < steps[1])  # x, if both are equal
    # The other side is rounded from the lower end of the longer one, so that both directions take the same points.
    low, high = (start, end) if start[long] <= end[long] else (end, start)
    t = np.arange(steps[long] + 1)
    slope = (high - low)[1 - long] / steps[long] if steps[long] else 0.0
    points = np.empty((len(t), 2), np.int64)
    points[:, long] = low[long] + t
    points[:, 1 - long] = np.trunc(low[1 - long] + slope * t + 0.5)
    return points if low is start else points[::-1]
