"""Graphs: nodes at places that keep their distances in the graph, coloured by a number each.

    stress = Σ_{i<j} (|x_i - x_j| - d_ij)² / d_ij²      d_ij: edges on the shortest path from i to j

The layout begins with classical scaling of the distances and lowers the stress step by step (majorisation), so the same
graph always has the same picture. Parts that are not connected stand side by side, the largest first. A graph of more
than `MAX_STRESS` nodes keeps the classical scaling.

Gansner, Koren, North: Graph Drawing by Stress Majorization. Graph Drawing 2004.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.see.overlay import draw_title, finish, wrap_caption
from regard.see.token_display import truncate_middle, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_STRESS = 600  # nodes of which the stress is lowered
MAX_NODES = 4096  # of a picture
MAX_NAMED = 60  # nodes that have their name beside them
STEPS = 200
_SIDE = 5.0  # inches


def graph_layout(edges: np.ndarray, nodes: int) -> np.ndarray:
    """Return places N 2 for the nodes of edges 2 E, about one unit apart where they are joined."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components, shortest_path

    joined = coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(nodes, nodes)).tocsr()
    _, part_of = connected_components(joined, directed=False)
    sizes = np.bincount(part_of)
    found, left = np.zeros((nodes, 2)), 0.0
    for part in np.argsort(-sizes, kind="stable"):
        own = np.flatnonzero(part_of == part)
        distance = shortest_path(joined[own][:, own], directed=False, unweighted=True)
        place = _place_part(distance)
        low, high = place.min(0), place.max(0)
        found[own] = place - np.array([low[0] - left, (low[1] + high[1]) / 2])
        left += high[0] - low[0] + 1.0
    return found


def _place_part(distance: np.ndarray) -> np.ndarray:
    """Return places for nodes that are all connected, by their distances; the longer side lies across."""
    n = len(distance)
    if n == 1:
        return np.zeros((1, 2))
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-centring @ distance**2 @ centring / 2)
    place = vectors[:, [-1, -2]] * np.sqrt(values[[-1, -2]].clip(0))
    # equal places would never part; the spread is fixed, so that a picture can be made again
    place += 0.05 * np.random.default_rng(0).standard_normal(place.shape)
    if n <= MAX_STRESS:
        weight = 1 / (distance + np.eye(n)) ** 2 * (1 - np.eye(n))
        inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight)
        for _ in range(STEPS):
            apart = np.linalg.norm(place[:, None] - place, axis=2)
            pull = -weight * distance / apart.clip(1e-9)
            place = inverse @ ((pull - np.diag(pull.sum(1))) @ place)
    place -= place.mean(0)
    turned: np.ndarray = place @ np.linalg.svd(place, full_matrices=False)[2].T
    return turned


def graph(
    edges: np.ndarray,
    nodes: int,
    values: np.ndarray | None = None,
    names: Sequence[str] = (),
    title: str = "",
    caption: str = "",
    directed: bool = False,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw a graph of edges 2 E; nodes are coloured by `values`, and named where they are few."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize
    from matplotlib.patheffects import withStroke

    from regard.see.layout import COLORMAP, INK, MARGIN, MUTED_INK, Layout, font, replace_missing_glyphs

    edges = np.asarray(edges).reshape(2, -1)
    if not 1 <= nodes <= MAX_NODES:
        raise BadInput(f"A picture shows 1 to {MAX_NODES:,} nodes; this graph has {nodes:,}.")
    if values is not None and (np.shape(values) != (nodes,) or not np.isfinite(values).all()):
        raise BadInput(f"Expected a finite number for each of {nodes} nodes, got shape {np.shape(values)}.")
    place = graph_layout(edges, nodes)
    low, high = place.min(0), place.max(0)
    wide, tall = (max(float(extent), 1.0) + 1.0 for extent in high - low)
    width = _SIDE if wide >= tall else max(2.0, _SIDE * wide / tall)
    height = _SIDE if tall > wide else max(1.2, _SIDE * tall / wide)
    lines = wrap_caption(caption, width)
    top = MARGIN + 0.4 + 0.16 * len(lines)
    layout = Layout(width + 2 * MARGIN + (0.8 if values is not None else 0.0), top + height + MARGIN)
    axes = layout.axes(MARGIN, top, width, height)
    axes.set_axis_off()
    middle = (low + high) / 2
    unit = max(wide / width, tall / height)  # of the graph, for an inch
    axes.set(
        xlim=(middle[0] - unit * width / 2, middle[0] + unit * width / 2),
        ylim=(middle[1] - unit * height / 2, middle[1] + unit * height / 2),
    )
    radius = float(np.clip(0.22 / unit, 0.02, 0.13))  # inches
    pairs = {(a, b) if directed else (min(a, b), max(a, b)) for a, b in edges.T.tolist() if a != b}
    ends = [(place[a], place[b]) for a, b in sorted(pairs)]
    if directed:
        arrow = {"arrowstyle": "-|>", "color": MUTED_INK, "lw": 0.8, "shrinkA": 72 * radius, "shrinkB": 72 * radius}
        for start, end in ends:
            axes.annotate("", xy=end, xytext=start, arrowprops=arrow)
    else:
        axes.add_collection(LineCollection(ends, colors=MUTED_INK, linewidths=0.8, zorder=1))
    norm = None if values is None else Normalize(0, max(float(np.max(values)), 1e-12))
    colours: Any = INK
    if norm is not None:
        colours = colormaps[COLORMAP](0.95 * np.asarray(norm(np.asarray(values)), dtype=np.float64))
    axes.scatter(
        place[:, 0], place[:, 1], s=(144 * radius) ** 2, c=colours, linewidths=0.6, edgecolors=MUTED_INK, zorder=2
    )
    if names and nodes <= MAX_NAMED:
        for name, (x, y) in zip(names, place, strict=True):
            word = replace_missing_glyphs(visible(truncate_middle(str(name), 14)))
            told = axes.text(
                x, y - unit * (radius + 0.03), word, font=font(7), color=INK, ha="center", va="top", zorder=3
            )
            told.set_path_effects([withStroke(linewidth=2, foreground="white")])  # edges pass behind it
    if norm is not None:
        layout.colorbar(MARGIN + width + 0.1, top, min(height, 2.0), norm, "")
    draw_title(layout, title, lines, width)
    return finish(layout.figure, path)
