"""Gradient estimators: variance of each, and convergence to the exact gradient as samples are averaged.

    left     variance of a single sample, divided by |exact gradient|²
    right    distance of the mean of n samples from the exact gradient, divided by its norm; 1/√n if unbiased

All axes are logarithmic. A line that levels off shows a bias, and its size.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[tuple[int, float]]  # samples and distance


def gradient_estimators(
    variances: Mapping[str, float],
    errors: Mapping[str, Points],
    path: str | os.PathLike[str] | None = None,
    title: str = "",
) -> Figure:
    """Draw both panels; also save the figure to `path` (.png or .svg) if given. All numbers must be above 0."""
    from regard.see.layout import MUTED_INK, PALETTE, Layout, font, replace_missing_glyphs

    names = list(dict.fromkeys([*variances, *errors]))
    numbers = [*variances.values(), *(distance for points in errors.values() for _, distance in points)]
    if not names or any(not number > 0 for number in numbers):
        raise BadInput("Nothing to draw: estimators need variances and distances above 0.")
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}
    height = max(3.0, 0.36 * len(names))
    layout = Layout(10.4, height + 1.35)
    layout.text(0.2, 0.16, visible(title), 11)

    left = layout.axes(1.9, 0.75, 2.9, height)
    for row, name in enumerate(names):
        if name in variances:
            left.barh(row, variances[name], color=colours[name], height=0.62, left=0)
            left.text(variances[name] * 1.12, row, f"{variances[name]:.3g}", va="center", font=font(8))
    left.set_xscale("log")
    left.set_xlim(min(variances.values(), default=1.0) / 3, max(variances.values(), default=1.0) * 6)
    left.set_yticks(range(len(names)), [replace_missing_glyphs(visible(name)) for name in names], font=font(8))
    left.set_ylim(len(names) - 0.4, -0.6)
    left.set_xlabel("variance of one sample / |exact gradient|²", font=font(8), color=MUTED_INK)

    right = layout.axes(5.75, 0.75, 4.35, height)
    for name, points in errors.items():
        samples, distances = zip(*points, strict=True)
        right.plot(samples, distances, color=colours[name], marker="o", markersize=2.5, linewidth=1.4, label=name)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("samples averaged", font=font(8), color=MUTED_INK)
    right.set_ylabel("distance from the exact gradient", font=font(8), color=MUTED_INK)
    for axes in (left, right):
        _log_axes(axes)
    if path is not None:
        save(layout.figure, path)
    return layout.figure


def _log_axes(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    from regard.see.layout import style_axes

    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    style_axes(axes)
