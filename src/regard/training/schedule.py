"""Learning rates as pure functions of the update number, so that a resumed run has nothing to restore.

    inverse_sqrt   up in a straight line for `warmup` updates, then rate · √(warmup / n)
    cosine         up likewise, then down half a cosine to `min_ratio` · rate at the last update
    linear         up likewise, then down in a straight line to `min_ratio` · rate at the last update
    wsd            up likewise, level, and over the last fifth of all updates down as 1 - √ to `min_ratio` · rate
    one_cycle      up half a cosine from a 25th of the rate, then down half a cosine to `min_ratio` · rate
    constant       up in a straight line, then level

The rise of one_cycle takes `warmup` updates, or three tenths of all where that is 0; only the rate has a cycle,
momentum has none. A run under wsd can be made longer later, from a checkpoint of its level part.

Vaswani et al. 2017, arXiv:1706.03762 (inverse_sqrt); Loshchilov and Hutter 2017, arXiv:1608.03983 (cosine); Hu et al.
2024, arXiv:2404.06395, and Hägele et al. 2024, arXiv:2405.18392 (wsd); Smith and Topin 2018, arXiv:1708.07120
(one_cycle)
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt

WSD_DECAY_FRACTION = 0.2  # the share of all updates over which wsd goes down
ONE_CYCLE_WARMUP_FRACTION = 0.3  # the share of all updates over which one_cycle goes up, where there is no warm-up
ONE_CYCLE_START_RATIO = 1 / 25  # where one_cycle begins

SCHEDULES: dict[str, Callable[[int, int, int, float], float]] = {
    "inverse_sqrt": lambda n, warmup, steps, min_ratio: sqrt(max(warmup, 1) / n),
    "cosine": lambda n, warmup, steps, min_ratio: (
        min_ratio + (1 - min_ratio) * (1 + cos(pi * _decay_progress(n, warmup, steps))) / 2
    ),
    "linear": lambda n, warmup, steps, min_ratio: 1 - (1 - min_ratio) * _decay_progress(n, warmup, steps),
    "wsd": lambda n, warmup, steps, min_ratio: (
        1 - (1 - min_ratio) * sqrt(_decay_progress(n, _wsd_decay_start(warmup, steps), steps))
    ),
    "one_cycle": lambda n, warmup, steps, min_ratio: SCHEDULES["cosine"](n, warmup, steps, min_ratio),
    "constant": lambda n, warmup, steps, min_ratio: 1.0,
}


def learning_rate_factor(schedule: str, update: int, warmup: int, steps: int, min_ratio: float = 0.0) -> float:
    """What the peak rate is multiplied with at an update, counted from 1."""
    once = schedule == "one_cycle"
    if once and not warmup:
        warmup = round(ONE_CYCLE_WARMUP_FRACTION * steps)
    if update < warmup:
        return (
            ONE_CYCLE_START_RATIO + (1 - ONE_CYCLE_START_RATIO) * (1 - cos(pi * (update - 1) / (warmup - 1))) / 2
            if once
            else update / warmup
        )
    return SCHEDULES[schedule](update, warmup, steps, min_ratio)


def _decay_progress(n: int, start: int, steps: int) -> float:
    """The share of the way down that is behind us."""
    return min(1.0, max(0.0, (n - start) / max(1, steps - start)))


def _wsd_decay_start(warmup: int, steps: int) -> int:
    """The last update at the full rate under wsd."""
    return max(warmup, steps - round(WSD_DECAY_FRACTION * steps))
