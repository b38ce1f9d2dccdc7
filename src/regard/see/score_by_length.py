"""A score over the length of the input, one line per system.

All lines share the same buckets, in order of first appearance; a missing bucket leaves a gap. The number of inputs per
bucket stands under its name if `counts` are given. Systems in `background` are drawn thin and pale, under one name.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":", "-.")  # used after all colours


def score_by_length(
    systems: Mapping[str, Mapping[str, float]],
    path: str | os.PathLike[str] | None = None,
    title: str = "",
    score: str = "BLEU",
    unit: str = "words in the source",
    counts: Mapping[str, int] | None = None,
    background: Mapping[str, Mapping[str, float]] | None = None,
    background_label: str = "others",
) -> Figure:
    """Draw systems, each a dict of bucket -> score; also save the figure to `path` (.png or .svg) if given."""
    from matplotlib.ticker import MaxNLocator

    from regard.see.layout import MUTED_INK, PALETTE, Layout, font, replace_missing_glyphs, style_axes

    background = background or {}
    every = [*systems.values(), *background.values()]
    buckets = list(dict.fromkeys(bucket for points in every for bucket in points))
    if not buckets:
        raise BadInput("Nothing to draw: give at least one system with a score.")
    rows = math.ceil((len(systems) + bool(background)) / 3)
    top = 0.55 + 0.2 * rows
    layout = Layout(8.0, top + 3.6 + 0.85)
    layout.text(0.2, 0.16, visible(title), 11)
    axes = layout.axes(0.75, top, 6.95, 3.6)
    for number, points in enumerate(background.values()):
        values = [points.get(bucket, math.nan) for bucket in buckets]
        label = replace_missing_glyphs(visible(background_label)) if number == 0 else None
        axes.plot(range(len(buckets)), values, color=MUTED_INK, alpha=0.5, linewidth=0.8, label=label)
    for number, (name, points) in enumerate(systems.items()):
        values = [points.get(bucket, math.nan) for bucket in buckets]
        colour, dash = PALETTE[number % len(PALETTE)], DASHES[number // len(PALETTE) % len(DASHES)]
        label = replace_missing_glyphs(visible(name))
        axes.plot(range(len(buckets)), values, dash, color=colour, linewidth=1.6, marker="o", markersize=3, label=label)
    many = counts or {}
    under = [f"\n({many[bucket]:,})" if bucket in many else "" for bucket in buckets]
    names = [replace_missing_glyphs(visible(bucket)) + more for bucket, more in zip(buckets, under, strict=True)]
    axes.set_xticks(range(len(buckets)), names, font=font(8))
    axes.set_xlabel(
        replace_missing_glyphs(f"{unit}{' (number of inputs)' if counts else ''}"), font=font(8), color=MUTED_INK
    )
    axes.set_ylabel(replace_missing_glyphs(score), font=font(8), color=MUTED_INK)
    axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.set_ylim(bottom=min(0.0, *_finite(every)))
    style_axes(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, prop=font(8), borderaxespad=0.1)
    if path is not None:
        save(layout.figure, path)
    return layout.figure


def _finite(every: Sequence[Mapping[str, float]]) -> Sequence[float]:
    return [value for points in every for value in points.values() if math.isfinite(value)]
