"""Learning rates as pure functions of the update number, so that a resumed run has nothing to restore.

inverse_sqrt   up in a straight line for `warmup` updates, then rate · √(warmup / n)
cosine         up likewise, then down half a cosine to `floor` · rate at the last update
constant       up likewise, then level
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt

SCHEDULES: dict[str, Callable[[int, int, int, float], float]] = {
    "inverse_sqrt": lambda n, warmup, steps, floor: sqrt(max(warmup, 1) / n),
    "cosine": lambda n, warmup, steps, floor: floor + (1 - floor) * (1 + cos(pi * _done(n, warmup, steps))) / 2,
    "constant": lambda n, warmup, steps, floor: 1.0,
}


def factor(schedule: str, update: int, warmup: int, steps: int, floor: float = 0.0) -> float:
    """What the peak rate is multiplied with at an update, counted from 1."""
    if update < warmup:
        return update / warmup
    return SCHEDULES[schedule](update, warmup, steps, floor)


def _done(n: int, warmup: int, steps: int) -> float:
    """The share of the way down that is behind us."""
    return min(1.0, (n - warmup) / max(1, steps - warmup))
