"""Learning rates as pure functions of the update number, so that a resumed run has nothing to restore.

    inverse_sqrt   up in a straight line for `warmup` updates, then rate · √(warmup / n)
    cosine         up likewise, then down half a cosine to `floor` · rate at the last update
    linear         up likewise, then down in a straight line to `floor` · rate at the last update
    wsd            up likewise, level, and over the last fifth of all updates down as 1 - √ to `floor` · rate
    one_cycle      up half a cosine from a 25th of the rate, then down half a cosine to `floor` · rate
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

LAST = 0.2  # the share of all updates over which wsd goes down
RISE = 0.3  # the share of all updates over which one_cycle goes up, where there is no warm-up
START = 1 / 25  # where one_cycle begins

SCHEDULES: dict[str, Callable[[int, int, int, float], float]] = {
    "inverse_sqrt": lambda n, warmup, steps, floor: sqrt(max(warmup, 1) / n),
    "cosine": lambda n, warmup, steps, floor: floor + (1 - floor) * (1 + cos(pi * _done(n, warmup, steps))) / 2,
    "linear": lambda n, warmup, steps, floor: 1 - (1 - floor) * _done(n, warmup, steps),
    "wsd": lambda n, warmup, steps, floor: 1 - (1 - floor) * sqrt(_done(n, _turn(warmup, steps), steps)),
    "one_cycle": lambda n, warmup, steps, floor: SCHEDULES["cosine"](n, warmup, steps, floor),
    "constant": lambda n, warmup, steps, floor: 1.0,
}


def factor(schedule: str, update: int, warmup: int, steps: int, floor: float = 0.0) -> float:
    """What the peak rate is multiplied with at an update, counted from 1."""
    once = schedule == "one_cycle"
    if once and not warmup:
        warmup = round(RISE * steps)
    if update < warmup:
        return START + (1 - START) * (1 - cos(pi * (update - 1) / (warmup - 1))) / 2 if once else update / warmup
    return SCHEDULES[schedule](update, warmup, steps, floor)


def _done(n: int, start: int, steps: int) -> float:
    """The share of the way down that is behind us."""
    return min(1.0, max(0.0, (n - start) / max(1, steps - start)))


def _turn(warmup: int, steps: int) -> int:
    """The last update at the full rate under wsd."""
    return max(warmup, steps - round(LAST * steps))
