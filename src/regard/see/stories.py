"""Hops over a story: a row for each sentence, a column for each hop, and the supporting sentences marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.see.layout import (
    INK,
    MARGIN,
    PALETTE,
    Layout,
    draw_map,
    font,
    label_columns,
    replace_missing_glyphs,
    truncate_to_width,
)
from regard.see.map_views import to_numpy
from regard.see.token_display import visible

_CELL, _HOP, _LETTER, _MAX_TEXT = 0.26, 0.55, 0.08, 4.2  # inches: a row, a column, a letter, the sentences at most


def story_hops(
    sentences: Sequence[str], weights: Float[Tensor, "hops S"], title: str = "", support: Collection[int] = ()
) -> Figure:
    """Draw the weight of every sentence at every hop; `support` are the sentences (from 0) that a box marks."""
    drawn = to_numpy(weights).T
    if drawn.shape[0] != len(sentences) or not len(sentences):
        raise BadInput(f"weights of {drawn.shape[0]} sentences do not fit {len(sentences)} sentences")
    if outside := [n for n in support if not 0 <= n < len(sentences)]:
        raise BadInput(f"the supporting sentence {outside[0]} is not one of the {len(sentences)} sentences")
    hops, text = drawn.shape[1], min(_MAX_TEXT, _LETTER * max(map(len, sentences)) + 0.2)
    width, height, top = hops * _HOP, len(sentences) * _CELL, MARGIN + 0.85
    layout = Layout(MARGIN + text + width + 1.0, top + height + MARGIN)
    axes, norm = layout.axes(MARGIN + text, top, width, height), Normalize(0.0, max(float(drawn.max()), 1e-9))
    draw_map(axes, drawn, norm)
    names = [replace_missing_glyphs(truncate_to_width(visible(each), _MAX_TEXT, 9)) for each in sentences]
    axes.set_yticks(range(len(names)), names, font=font(9), color=INK, parse_math=False)
    label_columns(axes, [f"hop {n}" for n in range(1, hops + 1)], _HOP)
    for i, j in np.argwhere(drawn >= 0.005):
        ink = INK if norm(drawn[i, j]) > 0.6 else "white"
        axes.text(j, i, f"{drawn[i, j]:.2f}", ha="center", va="center", font=font(7), color=ink)
    for n in support:
        axes.add_patch(
            Rectangle((-0.5, n - 0.5), hops, 1, fill=False, edgecolor=PALETTE[2], linewidth=2.0, clip_on=False)
        )
    layout.colorbar(MARGIN + text + width + 0.2, top, height, norm)
    layout.text(MARGIN, MARGIN, truncate_to_width(visible(title), layout.width - 2 * MARGIN), 11)
    return layout.figure
