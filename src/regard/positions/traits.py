"""What a positional encoding declares of itself; `regard list positions` shows it, a contract test checks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PositionTraits:
    """What an encoding encodes, learns and claims.

    Args:
        encodes: what it says where a token is in: sequence, grid, window (of a grid), points, ground, globe or graph.
        learned: what is learned: nothing, table, network, or projection.
        other_sizes: larger or smaller inputs than in training: "any", by the same formula; "clamped": far distances
            share one value; "resized": a table is interpolated; "refused".
        invariant: changes that leave the similarity of two positions the same. "shift": of both by as much (of cells of
            a window or grid: within it); "resolution": more cells over the same area, looked at in the same places;
            "rotation" of the globe; "relabeling" of the nodes.
    """

    encodes: str
    learned: str = "nothing"
    other_sizes: str = "any"
    invariant: frozenset[str] = frozenset()
