"""Curves of several runs in one figure: a colour for each run, the losses on top, each score in its own panel.

Takes the rows of each run's metrics.jsonl. The training loss is thin, the validation loss strong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard.core.errors import BadInput
from regard.metrics.base import Metric, find_metric
from regard.see.save import save
from regard.see.token_display import visible
from regard.see.training_curve import SYSTEM_METRICS, is_loss, panels, series, smooth

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run_curves(
    runs: Mapping[str, Iterable[Mapping[str, Any]]],
    path: str | os.PathLike[str] | None = None,
    metrics: Sequence[Metric] = (),
) -> Figure:
    """Draw the curves of runs, by name; also save the figure to `path` (.png or .svg) if given."""
    from matplotlib.ticker import MaxNLocator

    from regard.see.layout import MUTED_INK, PALETTE, Layout, font, replace_missing_glyphs, style_axes

    found = {name: series(rows) for name, rows in runs.items()}
    keys = dict.fromkeys(key for each in found.values() for key in each if key not in SYSTEM_METRICS)
    drawn = panels(keys)
    if not drawn:
        raise BadInput("Nothing to draw: the runs have no losses or scores yet.")
    heights = [3.2 if is_loss(panel[0]) else 2.0 for panel in drawn]
    legend = 0.2 * len(runs)
    layout = Layout(8.0, 0.5 + legend + sum(heights) + 0.5 * len(drawn) + 0.2)
    for n, name in enumerate(found):
        layout.text(0.4, 0.2 + 0.2 * n, visible(name), 9, PALETTE[n % len(PALETTE)])
    end = max(steps.max() for each in found.values() for steps, _, _ in each.values())
    top = 0.5 + legend
    for panel, height in zip(drawn, heights, strict=True):
        axes = layout.axes(0.85, top, 6.85, height)
        for n, each in enumerate(found.values()):
            for key in panel:
                if key not in each:
                    continue
                steps, values, _ = each[key]
                metric = find_metric(metrics, key)
                values = values * (metric.scale if metric is not None else 1)
                thin = key == "loss"
                values = smooth(values) if thin and len(values) > 120 else values
                axes.plot(
                    steps,
                    values,
                    color=PALETTE[n % len(PALETTE)],
                    linewidth=0.9 if thin else 1.8,
                    alpha=0.55 if thin else 1.0,
                    marker="o" if not thin and len(steps) <= 60 else None,
                    markersize=2.5,
                )
        labels = [metric.label if (metric := find_metric(metrics, key)) else key for key in panel]
        label = "loss: training thin, validation strong" if is_loss(panel[0]) else replace_missing_glyphs(labels[0])
        axes.set_title(label, font=font(8), color=MUTED_INK, loc="left")
        axes.set_xlim(0, max(end, 1) * 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.ticklabel_format(axis="y", useOffset=False)
        style_axes(axes, 7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="x", labelbottom=panel is drawn[-1])
        top += height + 0.5
    axes.set_xlabel("step", font=font(8), color=MUTED_INK)
    if path is not None:
        save(layout.figure, path)
    return layout.figure
