"""Learning rate schedules as pure functions of the update number, so that a resumed run has nothing to restore.

    inverse_sqrt   linear warmup over `warmup` updates, then rate · √(warmup / n)
    cosine         linear warmup, then half a cosine down to `min_ratio` · rate at the last update
    linear         linear warmup, then linear down to `min_ratio` · rate at the last update
    wsd            linear warmup, constant, and over the last fifth of all updates 1 - √ down to `min_ratio` · rate
    one_cycle      half a cosine up from a 25th of the rate, then half a cosine down to `min_ratio` · rate
    constant       linear warmup, then constant

The rise of one_cycle takes `warmup` updates, or three tenths of all if that is 0; only the learning rate has a cycle,
not the momentum. A run with wsd can be extended later, from a checkpoint of its constant part.

Vaswani et al. 2017, arXiv:1706.03762 (inverse_sqrt); Loshchilov and Hutter 2017, arXiv:1608.03983 (cosine); Hu et al.
2024, arXiv:2404.06395, and Hägele et al. 2024, arXiv:2405.18392 (wsd); Smith and Topin 2018, arXiv:1708.07120
(one_cycle)
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sqrt

WSD_DECAY_FRACTION = 0.2  # share of all updates in the decay of wsd
ONE_CYCLE_WARMUP_FRACTION = 0.3  # share of all updates in the rise of one_cycle without warmup
ONE_CYCLE_START_RATIO = 1 / 25  # start of one_cycle, relative to the peak

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
    """Return the factor of the peak learning rate at an update, counted from 1."""
    one_cycle = schedule == "one_cycle"
    if one_cycle and not warmup:
        warmup = round(ONE_CYCLE_WARMUP_FRACTION * steps)
    if update < warmup:
        return (
            ONE_CYCLE_START_RATIO + (1 - ONE_CYCLE_START_RATIO) * (1 - cos(pi * (update - 1) / (warmup - 1))) / 2
            if one_cycle
            else update / warmup
        )
    return SCHEDULES[schedule](update, warmup, steps, min_ratio)


def _decay_progress(n: int, start: int, steps: int) -> float:
    """Return the fraction of the decay that is done."""
    return min(1.0, max(0.0, (n - start) / max(1, steps - start)))


def _wsd_decay_start(warmup: int, steps: int) -> int:
    """Return the last update at the full rate under wsd."""
    return max(warmup, steps - round(WSD_DECAY_FRACTION * steps))
