"""The globe: values over longitude and latitude as a map, and places on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import BadInput
from regard.see.overlay import draw_title, finish, wrap_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 6.0, 3.0  # inches


def globe(
    values: np.ndarray,
    places: Sequence[tuple[float, float]] = (),
    title: str = "",
    caption: str = "",
    unit: str = "",
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw values Y X, row 0 at the north pole and column 0 at 180 degrees west, with places (longitude, latitude)."""
    from matplotlib.colors import Normalize

    from regard.see.layout import MARGIN, MUTED_INK, PALETTE, Layout, draw_map, font

    shown = np.asarray(values, dtype=np.float64)
    if shown.ndim != 2 or not shown.size or not np.isfinite(shown).all():
        raise BadInput(f"Expected finite values, rows of latitude and columns of longitude; got shape {shown.shape}.")
    for longitude, latitude in places:
        if not (-180 <= longitude <= 180 and -90 <= latitude <= 90):
            raise BadInput(f"No place is at longitude {longitude:g}, latitude {latitude:g}.")
    low, high = float(shown.min()), float(shown.max())
    if low >= 0 and high <= 1:  # a share
        low, high = 0.0, 1.0
    norm = Normalize(low, high if high > low else low + 1)
    lines = wrap_caption(caption, _WIDTH)
    top, left = MARGIN + 0.4 + 0.16 * len(lines), MARGIN + 0.4
    layout = Layout(left + _WIDTH + MARGIN + 0.8, top + _HEIGHT + 0.35)
    axes = layout.axes(left, top, _WIDTH, _HEIGHT)
    draw_map(axes, shown, norm, "cividis").set_extent((-180, 180, -90, 90))
    for longitude, latitude in places:
        axes.plot(longitude, latitude, "o", ms=9, mfc="none", mec="white", mew=3.5)
        axes.plot(longitude, latitude, "o", ms=9, mfc="none", mec=PALETTE[1], mew=1.8)
    axes.set(xlim=(-180, 180), ylim=(-90, 90), xticks=range(-180, 181, 60), yticks=range(-90, 91, 30))
    axes.set_xticklabels([f"{abs(x)}°{'W' * (x < 0)}{'E' * (x > 0)}" for x in range(-180, 181, 60)], font=font(7))
    axes.set_yticklabels([f"{abs(y)}°{'S' * (y < 0)}{'N' * (y > 0)}" for y in range(-90, 91, 30)], font=font(7))
    axes.tick_params(width=0.5, length=2, color=MUTED_INK, labelcolor=MUTED_INK)
    layout.colorbar(left + _WIDTH + 0.12, top, _HEIGHT, norm, unit, "cividis")
    draw_title(layout, title, lines, _WIDTH)
    return finish(layout.figure, path)
