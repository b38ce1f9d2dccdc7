"""Vectors with names as points of a plane: the two directions in which they differ most (principal components).

What is near in the plane need not be near in all dimensions; the title says how much of the spread the plane shows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import truncate_middle, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pca(
    vectors: np.ndarray,
    names: Sequence[str],
    groups: Sequence[str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """The figure of vectors N C (scaled to length one) with a name each, a colour a group; also written to `alignment_path`."""
    from regard.see.layout import INK, PALETTE, Layout, font, replace_missing_glyphs

    if len(vectors) != len(names) or len(vectors) < 2 or vectors.ndim != 2:
        raise BadInput(f"{len(names)} names for vectors of shape {vectors.shape}: give a name each, and at least two")
    places, shown = principal_components(vectors)
    layout = Layout(7.0, 6.2)
    layout.text(0.2, 0.16, f"two directions of {vectors.shape[1]}: {shown:.0%} of the spread", 10)
    axes = layout.axes(0.3, 0.6, 6.4, 5.3)
    owners = list(groups) if groups is not None else [""] * len(names)
    order = list(dict.fromkeys(owners))
    for place, name, owner in zip(places, names, owners, strict=True):
        colour = PALETTE[order.index(owner) % len(PALETTE)]
        axes.plot(*place, "o", color=colour, markersize=3.5)
        axes.annotate(
            replace_missing_glyphs(truncate_middle(visible(name))),
            place,
            xytext=(4, 2),
            textcoords="offset points",
            font=font(8),
            color=INK,
        )
    axes.margins(0.1)
    if path is not None:
        save(layout.figure, path)
    return layout.figure


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Places N 2 of vectors of length one, and the share of their spread that these show; the same for equal input."""
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    middle = units - units.mean(0)
    u, sizes, _ = np.linalg.svd(middle, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    for i in range(min(2, len(sizes))):
        axis = u[:, i] * sizes[i]
        places[:, i] = axis * (1 if axis[np.abs(axis).argmax()] >= 0 else -1)  # an axis has no sign of its own
    total = float((sizes**2).sum())
    return places, float((sizes[:2] ** 2).sum() / total) if total else 1.0
