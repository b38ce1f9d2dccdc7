"""Gates of channels (squeeze-and-excitation): a strip for every layer, a cell for every channel, beside the photo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.see.overlay import as_rgb, draw_title, finish, wrap_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PHOTO, _STRIP, _ROW, _GAP = 1.8, 6.0, 0.24, 0.06  # inches


def channel_gates(
    photo: Any,
    gates: Mapping[str, np.ndarray],
    title: str = "",
    caption: str = "",
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw the gates of all layers, {name: channels}, each from 0 to 1; also save the figure to `path` if given."""
    from matplotlib.colors import Normalize

    from regard.see.layout import MARGIN, MUTED_INK, Layout, draw_map, max_label_width

    photo, rows = as_rgb(photo), {name: np.asarray(gate, dtype=np.float64) for name, gate in gates.items()}
    if not rows or any(gate.ndim != 1 or not gate.size or not np.isfinite(gate).all() for gate in rows.values()):
        raise BadInput("Expected finite gates, one for each channel of at least one layer.")
    left = MARGIN + _PHOTO + 0.2 + max_label_width([*rows], 7) + 0.08
    width = left + _STRIP + 1.1
    lines = wrap_caption(caption, width - 2 * MARGIN)
    top = MARGIN + 0.4 + 0.16 * len(lines)
    down = len(rows) * (_ROW + _GAP)
    high, wide = photo.shape[:2]
    tall = _PHOTO * high / max(high, wide)
    layout, norm = Layout(width, top + max(down, tall) + MARGIN), Normalize(0, 1)
    layout.axes(MARGIN, top, _PHOTO * wide / max(high, wide), tall).imshow(photo)
    for n, (name, gate) in enumerate(rows.items()):
        at = top + n * (_ROW + _GAP)
        layout.text(left - 0.08, at + 0.06, name, 7, align="right")
        draw_map(layout.axes(left, at, _STRIP, _ROW), gate[None], norm)
        layout.text(left + _STRIP + 0.05, at + 0.06, str(len(gate)), 7, MUTED_INK)
    layout.colorbar(left + _STRIP + 0.45, top, max(down - _GAP, 0.6), norm, "gate")
    draw_title(layout, title, lines, width - 2 * MARGIN)
    return finish(layout.figure, path)
