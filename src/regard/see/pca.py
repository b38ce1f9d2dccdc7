"""Named vectors on their first two principal components.

Points that are close in the plane need not be close in all dimensions; the title gives the explained variance.
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
    """Draw named vectors N C, scaled to unit length, with a colour per group; also save it to `path` if given."""
    from regard.see.layout import INK, PALETTE, Layout, font, replace_missing_glyphs

    if len(vectors) != len(names) or len(vectors) < 2 or vectors.ndim != 2:
        raise BadInput(
            f"Expected at least 2 vectors N C and one name each, got shape {vectors.shape} and {len(names)} names."
        )
    places, explained = principal_components(vectors)
    layout = Layout(7.0, 6.2)
    layout.text(0.2, 0.16, f"first two of {vectors.shape[1]} components: {explained:.0%} of the variance", 10)
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
    """Project vectors, scaled to unit length, to N 2; also return the explained fraction of the variance."""
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    middle = units - units.mean(0)
    u, sizes, _ = np.linalg.svd(middle, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    for i in range(min(2, len(sizes))):
        axis = u[:, i] * sizes[i]
        places[:, i] = axis * (1 if axis[np.abs(axis).argmax()] >= 0 else -1)  # fix the arbitrary sign
    total = float((sizes**2).sum())
    return places, float((sizes[:2] ** 2).sum() / total) if total else 1.0
