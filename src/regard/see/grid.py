"""Grids of maps as matplotlib figures: all heads of a layer, one large alignment, all layers, a mask.

Rows are queries, columns are keys; bright means a large weight. The maps of one figure share one colour scale, so that
colours can be compared; it grows with the square root of the weight, which keeps the small weights of a broad head
visible next to a sharp one. Returns a `Figure`: show it in a notebook, or `regard.see.save` it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.colors import ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Tensor
from regard.see.layout import (
    INK,
    MARGIN,
    MUTED_INK,
    Layout,
    draw_map,
    font,
    label_columns,
    label_rows,
    label_stride,
    max_label_width,
    title_width,
)
from regard.see.maps import AttentionMaps, MapLike, to_all_maps, to_maps
from regard.see.token_display import visible

_CELL = 0.36  # inches: a cell at most
_MAX_SIDE = 11.0  # inches


def alignment(seen: MapLike, head: int | None = None, title: str | None = None) -> Figure:
    """Draw one large map with every row and column labelled; `head` None: the mean over heads."""
    maps = to_maps(seen)
    weights = maps.map(head)
    n, m = weights.shape
    wide, high = min(_CELL, _MAX_SIDE / m), min(_CELL, _MAX_SIDE / n)
    width, height = max(m * wide, 0.8), max(n * high, 0.8)
    wide, high = width / m, height / n
    left = MARGIN + max_label_width(maps.rows) + 0.32
    names = max_label_width(maps.columns)
    slant = 0.72 if label_stride(wide) == 1 else 1.0  # sin 45° plus the letter height
    top = MARGIN + 0.34 + names * slant + 0.22
    right = max(0.85, names * slant + 0.1 if slant < 1 else 0.0)  # the last slanted label extends past the map
    title = visible(title) if title else _title(maps, head)
    layout = Layout(max(left + width + right + MARGIN, title_width(title)), top + height + 0.35)

    norm = linear_norm([weights])
    axes = layout.axes(left, top, width, height)
    draw_map(axes, weights, norm)
    label_rows(axes, maps.rows, high)
    label_columns(axes, maps.columns, wide)
    row_label, column_label = maps.sides
    axes.set_ylabel(row_label, font=font(8), color=MUTED_INK)
    axes.set_xlabel(column_label, font=font(8), color=MUTED_INK)
    if min(wide, high) >= 0.28:
        for i, j in np.argwhere(np.abs(weights) >= 0.005):
            share = norm(weights[i, j])
            ink = INK if share > 0.6 else "white" if share > 0.12 else "#8d8aa8"  # faint numbers for small weights
            axes.text(j, i, _number(weights[i, j]), ha="center", va="center", font=font(7), color=ink)
    layout.colorbar(left + width + 0.15, top, height, norm)
    layout.text(MARGIN, MARGIN, title, 11)
    return layout.figure


def heads(seen: MapLike, title: str | None = None, captions: Sequence[str] = ()) -> Figure:
    """Draw every head of one layer side by side, on one colour scale; `captions` name the heads."""
    maps = to_maps(seen)
    count, n, m = maps.weights.shape
    across = grid_columns(count)
    down = -(-count // across)
    width, height = panel_size(m), panel_size(n)
    left, bottom = MARGIN + max_label_width(maps.rows, 7) + 0.1, max_label_width(maps.columns, 7) + 0.15
    top, gap, line = MARGIN + 0.52, 0.16, 0.22  # line: the caption over each map
    full = left + across * width + (across - 1) * gap
    title = visible(title) if title else maps.title
    wide = max(full + 0.95, title_width(title, maps.explanation))
    layout = Layout(wide, top + down * (line + height + gap) - gap + bottom + MARGIN)

    norm = sqrt_norm(list(maps.weights))
    for k, weights in enumerate(maps.weights):
        y, x = divmod(k, across)
        place = left + x * (width + gap), top + y * (line + height + gap)
        layout.text(place[0], place[1] + 0.04, captions[k] if captions else f"head {maps.heads[k]}", 8)
        axes = layout.axes(place[0], place[1] + line, width, height)
        draw_map(axes, weights, norm)
        if x == 0:
            label_rows(axes, maps.rows, height / n, 7)
        if k + across >= count:  # nothing below
            label_columns(axes, maps.columns, width / m, 7, above=False)
    layout.colorbar(full + 0.18, top + line, down * (line + height + gap) - gap - line, norm)
    layout.text(MARGIN, MARGIN, title, 11)
    layout.text(MARGIN, MARGIN + 0.24, maps.explanation, 8, MUTED_INK)
    return layout.figure


def layers(seen: Sequence[MapLike], title: str | None = None) -> Figure:
    """Draw a small map per layer (down) and head (across), on one colour scale."""
    all_maps = to_all_maps(seen)
    most = max(len(maps.weights) for maps in all_maps)
    side = float(np.clip(11 / most, 0.45, 1.1))
    captions = [_layer(maps) for maps in all_maps]
    left, top, gap = MARGIN + max_label_width(captions, 8) + 0.12, MARGIN + 0.74, 0.07
    full, long = left + most * (side + gap) - gap, len(all_maps) * (side + gap) - gap
    what = all_maps[0].title.split(", ")[-1] if len({maps.kind for maps in all_maps}) == 1 else "attention"
    title = visible(title) if title else f"{what}, all layers and heads"
    explanation = all_maps[0].explanation
    layout = Layout(max(full + 0.95, title_width(title, explanation)), top + long + MARGIN)

    norm = sqrt_norm([maps.weights for maps in all_maps])
    for y, maps in enumerate(all_maps):
        down = top + y * (side + gap)
        layout.text(left - 0.1, down + side / 2 - 0.06, captions[y], 8, align="right")
        for x, weights in enumerate(maps.weights):
            draw_map(layout.axes(left + x * (side + gap), down, side, side), weights, norm)
    common = all_maps[0].heads if len({maps.heads for maps in all_maps}) == 1 else tuple(range(most))
    for x, number in enumerate(common):
        layout.text(left + x * (side + gap) + side / 2, top - 0.17, f"head {number}", 8, align="center")
    layout.colorbar(full + 0.18, top, long, norm)
    layout.text(MARGIN, MARGIN, title, 11)
    layout.text(MARGIN, MARGIN + 0.24, explanation, 8, MUTED_INK)
    return layout.figure


def mask(
    allow: Bool[Tensor, "N M"] | np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "mask: which keys a query may attend to",
) -> Figure:
    """Draw a dense mask; filled cells (True) may be attended to."""
    dense = torch.as_tensor(allow)
    while dense.ndim > 2 and dense.shape[0] == 1:
        dense = dense[0]
    if dense.ndim != 2 or dense.dtype != torch.bool or not dense.numel():
        raise BadInput(f"Expected a bool matrix N M, got {dense.dtype} of shape {tuple(dense.shape)}.")
    n, m = dense.shape
    names = [
        [visible(t) for t in labels] if labels is not None else list(map(str, range(k)))
        for labels, k in ((rows, n), (columns, m))
    ]
    if (len(names[0]), len(names[1])) != (n, m):
        raise BadInput(f"Got {len(names[0])} row names and {len(names[1])} column names for a {n} x {m} mask.")
    wide, high = min(0.26, 8 / m), min(0.26, 8 / n)
    left, top = MARGIN + max_label_width(names[0]) + 0.32, MARGIN + 0.34 + max_label_width(names[1]) + 0.22
    title = visible(title)
    layout = Layout(max(left + max(m * wide, 2.2) + 0.5, title_width(title)), top + n * high + 0.4)

    axes = layout.axes(left, top, m * wide, n * high)
    draw_map(axes, dense.cpu().numpy().astype(np.float32), Normalize(0, 1), ListedColormap(["#eceef3", "#3b6fb6"]))
    label_rows(axes, names[0], high)
    label_columns(axes, names[1], wide)
    axes.set_ylabel("query", font=font(8), color=MUTED_INK)
    axes.set_xlabel("key (filled: may be attended to)", font=font(8), color=MUTED_INK)
    if min(wide, high) >= 0.08:  # white lines between cells that are large enough
        axes.set_xticks(np.arange(m - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(n - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="minor", length=0)
    layout.text(MARGIN, MARGIN, title, 11)
    return layout.figure


def linear_norm(weights: list[np.ndarray]) -> Normalize:
    """Return a linear colour scale from 0 (or the smallest weight, if negative) to the largest weight."""
    low, high = min(0.0, *(w.min() for w in weights)), max(w.max() for w in weights)
    return Normalize(low, high if high > low else low + 1.0)


def sqrt_norm(weights: list[np.ndarray]) -> Normalize:
    """Return a square-root colour scale from 0 to the largest weight; linear if any weight is negative."""
    plain = linear_norm(weights)
    return plain if plain.vmin else PowerNorm(0.5, 0.0, plain.vmax)


def _number(weight: float) -> str:
    return f"{weight:.2f}".replace("0.", ".", 1)


def panel_size(count: int) -> float:
    """Return the side in inches of a small map of `count` cells."""
    return float(np.clip(count * 0.14, 1.1, 2.6))


def grid_columns(count: int) -> int:
    """Return the number of panels per row: the first of 4, 6, 5, 3 that divides `count`, else 4."""
    if count <= 3:
        return count
    return next((k for k in (4, 6, 5, 3) if count % k == 0), 4)


def _layer(maps: AttentionMaps) -> str:
    return f"layer {maps.layer}" if maps.layer.isdigit() else maps.layer


def _title(maps: AttentionMaps, head: int | None) -> str:
    if len(maps.heads) == 1 and head is None:
        return maps.title
    return f"{maps.title}, " + (f"mean of {len(maps.heads)} heads" if head is None else f"head {head}")
