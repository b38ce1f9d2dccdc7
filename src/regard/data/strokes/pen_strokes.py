"""Pen strokes as arrays: read characters, resample them at even distances, compose them to lines.

    Character    points N 2 (x to the right, y down, baseline and left edge at 0, about 1 high), and after which of them
                 the pen is lifted (always after the last)
    resampled    the same with points at even distances along a stroke, however fast the hand was
    line         characters side by side -> offsets (dx, dy, pen lifted after this point)

A line begins and ends on the baseline: its first offset leads from the left edge to the first character, its last from
the last character to where the next line could begin. So every character begins with a jump, and so does the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from regard.core.errors import BadInput

# UJI: of the 120 samples of each digit, two in a row are by one writer (sizes of 2k and 2k + 1 correlate by 0.76,
# of 2k + 1 and 2k + 2 by 0.20), so these splits share no writer.
UJI_SPLITS = {"train": range(80), "val": range(80, 100), "test": range(100, 120)}
OMNIGLOT_SPLITS = {"train": "train", "val": "valid", "test": "test"}
OMNIGLOT_HEIGHT = 400.0  # height of a character in Omniglot's units, approximately


@dataclass(frozen=True, eq=False)
class Character:
    """One drawn character."""

    points: np.ndarray  # N 2
    pen_up: np.ndarray  # N
    label: int = 0  # which character it is
    writer: int = 0


def read_uji(folder: Path, part: str, spacing: float) -> list[Character]:
    """Return the digits of a split, scaled to a median height of 1 per writer, points `spacing` apart (0: all)."""
    found = _load_arrays(folder / "uji_digits.npz")
    ends, label, sample = found["offsets"], found["digit"], found["sample"]
    raw: list[Character] = []
    for i in np.flatnonzero(np.isin(sample, UJI_SPLITS[part])):
        rows = slice(ends[i], ends[i + 1])
        raw.append(Character(found["points"][rows] * 1.0, found["pen_up"][rows], int(label[i]), int(sample[i]) // 2))
    height = {
        w: float(np.median([np.ptp(c.points[:, 1]) for c in raw if c.writer == w])) for w in {c.writer for c in raw}
    }
    return [_normalize_character(c, height[c.writer], spacing) for c in raw]


def read_omniglot(folder: Path, part: str, spacing: float) -> list[Character]:
    """Return the drawn characters of a split; writers are unknown."""
    found, name = _load_arrays(folder / "omniglot_strokes.npz"), OMNIGLOT_SPLITS[part]
    ends = found[f"{name}_offsets"]
    steps, pen_up_flags = found[f"{name}_strokes"].astype(np.float64), found[f"{name}_pen_up"]
    return [
        _normalize_character(Character(steps[a:b].cumsum(0), pen_up_flags[a:b]), OMNIGLOT_HEIGHT, spacing)
        for a, b in pairwise(ends)
    ]


def resample_strokes(points: np.ndarray, pen_up: np.ndarray, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points at even distances along each stroke, about `spacing` apart; end points stay."""
    found, pen_ups = [], []
    for stroke in np.split(points, np.flatnonzero(pen_up)[:-1] + 1):
        distances = np.concatenate([[0.0], np.hypot(*np.diff(stroke, axis=0).T).cumsum()])
        count = max(1, round(distances[-1] / spacing)) + 1 if distances[-1] > 0 else 1  # a dot stays a dot
        positions = np.linspace(0, distances[-1], count)
        found.append(np.column_stack([np.interp(positions, distances, stroke[:, axis]) for axis in (0, 1)]))
        pen_ups.append(np.arange(count) == count - 1)
    return np.concatenate(found), np.concatenate(pen_ups)


@dataclass(frozen=True, eq=False)
class HandwritingStyle:
    """How a line is composed: one matrix for all characters, sizes and vertical offsets of each, and gaps."""

    matrix: np.ndarray  # 2 2
    sizes: np.ndarray  # n
    offsets: np.ndarray  # n
    gaps: np.ndarray  # n + 1: before the first, between, after the last

    @classmethod
    def random(cls, rng: np.random.Generator, count: int, vary: float) -> HandwritingStyle:
        """Return a random style: slant, width, size and slope, with `vary` times the variation of a few writers."""
        slant, width, height, climb = rng.normal(size=4) * vary * np.array([0.15, 0.10, 0.08, 0.02])
        matrix = np.array([[np.exp(width), -slant], [climb, 1.0]]) * np.exp(height)
        sizes, rise = np.exp(rng.normal(size=count) * 0.05 * vary), rng.normal(size=count) * 0.03 * vary
        return cls(matrix, sizes, rise, rng.uniform(0.15, 0.4, count + 1))


def compose_line(characters: Sequence[Character], style: HandwritingStyle) -> np.ndarray:
    """Compose characters side by side to offsets T 3; the last is the jump to where the next line could begin."""
    edge, points, pen_up_flags = 0.0, [np.zeros((1, 2))], []
    for character, size, rise, gap in zip(characters, style.sizes, style.offsets, style.gaps, strict=False):
        placed = character.points @ style.matrix.T * size
        placed = placed - [placed[:, 0].min() - edge - gap / 2, rise]
        edge = placed[:, 0].max() + gap / 2
        points.append(placed)
        pen_up_flags.append(character.pen_up)
    points.append(np.array([[edge, 0.0]]))
    steps = np.diff(np.concatenate(points), axis=0)
    return np.column_stack([steps, np.concatenate([*pen_up_flags, [True]])])


def _normalize_character(raw: Character, height: float, spacing: float) -> Character:
    """Scale a character and move it to the baseline and the left edge."""
    points = raw.points / height
    points = points - [points[:, 0].min(), points[:, 1].max()]
    pen_up_flags = raw.pen_up.copy()
    pen_up_flags[-1] = True
    if spacing:
        points, pen_up_flags = resample_strokes(points, pen_up_flags, spacing)
    return Character(points, pen_up_flags, raw.label, raw.writer)


@lru_cache(maxsize=2)
def _load_arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(file) as found:
            return dict(found)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the strokes in {file}: {error}") from None
