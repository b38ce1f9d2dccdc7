"""Position vectors as a heat map: a row per position, a column per feature."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORMAP = "RdBu_r"  # white is 0; safe for colour-blind readers


def positional_encoding(vectors: Any, path: str | os.PathLike[str] | None = None, title: str = "positions") -> Figure:
    """Draw N vectors of C features; also save the figure to `path` (.png or .svg) if given."""
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    from regard.see.layout import MUTED_INK, Layout, draw_map, font, style_axes

    numbers = np.asarray(vectors.detach().cpu() if hasattr(vectors, "detach") else vectors, dtype=float)
    if numbers.ndim != 2 or not numbers.size or not np.isfinite(numbers).all():
        raise BadInput(f"Expected finite numbers of shape N C (positions, features), got shape {numbers.shape}.")
    n, c = numbers.shape
    width, height = (min(6.0, max(2.0, 0.12 * count)) for count in (c, n))
    layout = Layout(0.75 + width + 1.1, 0.55 + height + 0.6)
    layout.text(0.15, 0.15, visible(title), 11)
    axes = layout.axes(0.75, 0.55, width, height)
    most = float(np.abs(numbers).max()) or 1.0
    norm = Normalize(-most, most)
    draw_map(axes, numbers, norm, COLORMAP)
    axes.set_xlabel("feature", font=font(8), color=MUTED_INK)
    axes.set_ylabel("position", font=font(8), color=MUTED_INK)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_locator(MaxNLocator(8, integer=True))
    style_axes(axes)
    axes.grid(visible=False)
    layout.colorbar(0.75 + width + 0.15, 0.55, height, norm, "value", COLORMAP)
    if path is not None:
        save(layout.figure, path)
    return layout.figure
