"""Gradient norm over the distance it has travelled (interpret.gradient_reach), one line per network, log scale."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gradient_by_distance(
    networks: Mapping[str, Sequence[float] | Any],
    path: str | os.PathLike[str] | None = None,
    title: str = "How far a gradient reaches",
) -> Figure:
    """Draw the gradient norm of each network at distances 0, 1, ...; also save the figure to `path` if given.

    Norms of zero are left out: a logarithmic axis has no zero.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    from regard.see.layout import MUTED_INK, PALETTE, Layout, font, replace_missing_glyphs, style_axes

    lines = {name: np.asarray(sizes, dtype=float) for name, sizes in networks.items()}
    if not any((sizes > 0).any() for sizes in lines.values()):
        raise BadInput("Nothing to draw: at least one network needs a gradient norm above 0.")
    layout = Layout(8.0, 4.9)
    layout.text(0.2, 0.16, visible(title), 11)
    axes = layout.axes(0.85, 0.75, 6.85, 3.5)
    for number, (name, sizes) in enumerate(lines.items()):
        shown = np.where(sizes > 0, sizes, np.nan)
        axes.plot(
            shown, color=PALETTE[number % len(PALETTE)], linewidth=1.6, label=replace_missing_glyphs(visible(name))
        )
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("distance between input and output, in positions", font=font(8), color=MUTED_INK)
    axes.set_ylabel("gradient norm", font=font(8), color=MUTED_INK)
    style_axes(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, prop=font(8), borderaxespad=0.1)
    if path is not None:
        save(layout.figure, path)
    return layout.figure
