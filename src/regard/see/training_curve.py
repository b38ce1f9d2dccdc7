"""Curves of a training run: losses on top, each score in its own panel, learning rate and speed below.

Takes the rows of metrics.jsonl: any key may be missing from any row, and numbers that are not finite are left out and
counted in the legend.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.metrics.base import Metric, find_metric
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AXIS_KEYS = ("step", "epoch", "time", "seconds", "eval_seconds", "tokens", "updates")  # not metrics
SYSTEM_METRICS = ("lr", "grad_norm", "tokens_per_second", "skipped_updates")  # drawn last, in lower panels
_NOISY = ("loss", "tokens_per_second")  # one value per step: drawn with its moving mean


def training_curve(
    rows: Iterable[Mapping[str, Any]],
    path: str | os.PathLike[str] | None = None,
    title: str = "training",
    unit: str = "tokens",
    metrics: Sequence[Metric] = (),
) -> Figure:
    """Draw the curves of a run; also save the figure to `path` (.png or .svg) if given.

    `unit` is what the speed counts: tokens, images, ... `metrics` are those of the task: names, units, directions.
    """
    from regard.see.layout import Layout

    found = series(rows)
    drawn = panels(found)
    if not drawn:
        raise BadInput("Nothing to draw: rows need a 'step' and a number such as 'loss', 'val_loss' or 'bleu'.")

    heights = [1.2 if panel[0] in SYSTEM_METRICS else 3.2 if is_loss(panel[0]) else 2.0 for panel in drawn]
    layout = Layout(8.0, 0.55 + sum(heights) + 0.42 * len(drawn) + 0.3)
    layout.text(0.2, 0.16, visible(title), 11)
    top = 0.62
    end = max(steps.max() for steps, _, _ in found.values())
    for panel, height in zip(drawn, heights, strict=True):
        axes = layout.axes(0.85, top, 6.85, height)
        _draw(axes, {key: found[key] for key in panel}, float(end), unit, metrics, last=panel is drawn[-1])
        top += height + 0.42
    if path is not None:
        save(layout.figure, path)
    return layout.figure


Series = dict[str, tuple[np.ndarray, np.ndarray, int]]  # key -> steps, values, how many were not finite


def series(rows: Iterable[Mapping[str, Any]]) -> Series:
    """Return every numeric key with its finite values in the order of steps; the last value of a step counts.

    Integers that never change (the size of the evaluation set) are left out.
    """
    points: dict[str, dict[float, float]] = {}
    for row in rows:
        step = row.get("step")
        if not _is_number(step):
            continue
        for key, value in numeric_metrics(row).items():
            points.setdefault(key, {})[float(step)] = value  # type: ignore[arg-type]
    found: Series = {}
    for key, by_step in points.items():
        steps = np.array(sorted(by_step))
        values = np.array([by_step[s] for s in steps])
        good = np.isfinite(values)
        if good.any() and (key in SYSTEM_METRICS or is_loss(key) or not _is_count(values)):
            found[key] = (steps[good], values[good], int((~good).sum()))
    return found


def numeric_metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a row of metrics.jsonl: its numbers except step, time and the like."""
    return {key: float(value) for key, value in row.items() if key not in _AXIS_KEYS and _is_number(value)}


def is_loss(key: str) -> bool:
    """Whether a key belongs in the panel of losses."""
    return key == "loss" or key.endswith("_loss")


def panels(found: Iterable[str]) -> list[list[str]]:
    """Group keys into panels, in drawing order: losses, each score by itself, then the system metrics."""
    keys = list(found)
    losses = [key for key in keys if is_loss(key)]
    scores = [[key] for key in keys if key not in losses and key not in SYSTEM_METRICS]
    return ([losses] if losses else []) + scores + [[key] for key in SYSTEM_METRICS if key in keys]


def _is_count(values: np.ndarray) -> bool:
    return len(values) > 1 and values[0] > 1 and values[0] % 1 == 0 and bool((values == values[0]).all())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _draw(axes: Axes, series: Series, end: float, unit: str, metrics: Sequence[Metric], last: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    from regard.see.layout import MUTED_INK, font, replace_missing_glyphs, style_axes

    for key, (steps, values, lost) in series.items():
        colour = _colour(key)
        metric = find_metric(metrics, key)
        values = values if metric is None else values * metric.scale
        label = metric.label if metric else f"{unit}_per_second" if key == "tokens_per_second" else key
        name = replace_missing_glyphs(visible(label)).replace("_", " ") + (
            f" ({lost} not finite, left out)" if lost else ""
        )
        few = len(steps) <= 60
        if key in _NOISY and len(steps) > 120:  # raw values faint, moving mean strong
            axes.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
            values = smooth(values)
        axes.plot(steps, values, color=colour, linewidth=1.6, marker="o" if few else None, markersize=2.5, label=name)
        if metric is not None and key != "loss":
            _mark_best(axes, metric, steps, values, colour)
    axes.set_xlim(0, max(end, 1) * 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3 if set(series) & set(SYSTEM_METRICS) else 6))
    axes.ticklabel_format(axis="y", useOffset=False)
    style_axes(axes, 7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, prop=font(8), borderaxespad=0.1)
    axes.tick_params(axis="x", labelbottom=last)
    if last:
        axes.set_xlabel("step", font=font(8), color=MUTED_INK)


def _mark_best(axes: Axes, metric: Metric, steps: np.ndarray, values: np.ndarray, colour: str) -> None:
    from regard.see.layout import font

    best = metric.best(values.tolist())
    if best is None:
        return
    axes.plot(steps[best], values[best], "o", color=colour, markersize=5, markerfacecolor="white", markeredgewidth=1.4)
    axes.annotate(
        f"{values[best]:.4g}",
        (steps[best], values[best]),
        xytext=(0, 7 if metric.higher_is_better else -13),
        textcoords="offset points",
        font=font(8),
        color=colour,
        ha="center",
    )
    axes.margins(y=0.16)


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred moving mean over a fortieth of the run, shorter at the ends."""
    half = max(1, len(values) // 80)
    total = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, past = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    smooth: np.ndarray = (total[past] - total[first]) / (past - first)
    return smooth


def _colour(key: str) -> str:
    from regard.see.layout import MUTED_INK, PALETTE

    blue, orange, green, *_ = PALETTE
    if key in SYSTEM_METRICS:
        return MUTED_INK
    return blue if key == "loss" else orange if key.endswith("loss") else green
