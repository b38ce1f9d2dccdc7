"""How large a gradient is over the distance that it has come (interpret.gradient_reach), one line a network, sizes as logarithms."""

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
    """The figure of networks, each with a size for every distance from 0 on; also written to `alignment_path` where one is given.

    Sizes of zero (nothing arrives) cannot stand on a logarithm: a line ends there.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    from regard.see.layout import MUTED_INK, PALETTE, Layout, font, replace_missing_glyphs, style_axes

    lines = {name: np.asarray(sizes, dtype=float) for name, sizes in networks.items()}
    if not any((sizes > 0).any() for sizes in lines.values()):
        raise BadInput("nothing to draw: give at least one network with a gradient above zero")
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
    axes.set_xlabel("places between the input and the output", font=font(8), color=MUTED_INK)
    axes.set_ylabel("size of the gradient", font=font(8), color=MUTED_INK)
    style_axes(axes)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, prop=font(8), borderaxespad=0.1)
    if path is not None:
        save(layout.figure, path)
    return layout.figure
