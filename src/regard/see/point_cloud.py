"""Point clouds: three views of the points, coloured by a number or a class each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import BadInput
from regard.see.overlay import draw_title, finish, wrap_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VIEW, _GAP = 2.3, 0.15  # inches
ANGLES = ((-60.0, 25.0), (30.0, 25.0), (0.0, 89.0))  # degrees of each view: around the z axis, and up


def point_cloud(
    points: np.ndarray,
    values: np.ndarray | None = None,
    title: str = "",
    caption: str = "",
    classes: Sequence[str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw points N 3 from the side, from another side and from above; also save the figure to `path` if given.

    `values` has a number for each point or, with `classes`, the index of its class; the legend names those that occur.
    Nearer points are drawn larger.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    from regard.see.layout import COLORMAP, INK, MARGIN, PALETTE, Layout
    from regard.see.outputs import COLORS

    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points) or not np.isfinite(points).all():
        raise BadInput(f"Expected finite points of shape N 3, got shape {points.shape}.")
    colours: list[object] | np.ndarray = [INK] * len(points)
    norm = None
    if values is not None:
        values = np.asarray(values)
        if values.shape != (len(points),) or not np.isfinite(values).all():
            raise BadInput(f"Expected a finite number for each of {len(points)} points, got shape {values.shape}.")
        if classes is not None:
            hues = (*PALETTE, *COLORS)
            colours = [hues[int(value) % len(hues)] for value in values]
        else:
            norm = Normalize(0, max(float(values.max()), 1e-12))
            colours = colormaps[COLORMAP](0.95 * np.asarray(norm(values), dtype=np.float64))
    middle = (points.min(0) + points.max(0)) / 2
    centred = points - middle
    extent = max(float(np.linalg.norm(centred, axis=1).max()), 1e-12)
    side = 0.9 if norm is not None or classes is not None else 0.0
    width = 2 * MARGIN + len(ANGLES) * (_VIEW + _GAP) + side
    lines = wrap_caption(caption, width - 2 * MARGIN)
    top = MARGIN + 0.4 + 0.16 * len(lines)
    layout = Layout(width, top + _VIEW + MARGIN)
    order = np.arange(len(points)) if values is None or classes is not None else np.argsort(values, kind="stable")
    for n, angles in enumerate(ANGLES):
        across, up, depth = project(centred / extent, *angles)
        axes = layout.axes(MARGIN + n * (_VIEW + _GAP), top, _VIEW, _VIEW)
        axes.set_axis_off()
        axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
        size = np.clip(2000 / len(points), 1.5, 14) * (1 + 0.5 * depth)
        shade = np.array([colours[i] for i in order], dtype=object if norm is None else float)
        axes.scatter(across[order], up[order], s=size[order], c=list(shade), linewidths=0)
    left = MARGIN + len(ANGLES) * (_VIEW + _GAP)
    if norm is not None:
        layout.colorbar(left + 0.1, top + 0.2, _VIEW - 0.4, norm, "")
    shown = [] if classes is None or values is None else np.unique(values).astype(int).tolist()
    for row, n in enumerate(shown):
        layout.text(left, top + 0.2 * row, f"● {classes[n]}", 8, hues[n % len(hues)])  # type: ignore[index]
    draw_title(layout, title, lines, width - 2 * MARGIN)
    return finish(layout.figure, path)


def project(points: np.ndarray, turn: float, lift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where points are seen, to the right and up, and how near they are, from these angles in degrees."""
    a, b = np.radians(turn), np.radians(lift)
    x, y, z = points.T
    across, away = x * np.cos(a) - y * np.sin(a), x * np.sin(a) + y * np.cos(a)
    return across, z * np.cos(b) + away * np.sin(b), z * np.sin(b) - away * np.cos(b)
