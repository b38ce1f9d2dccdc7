"""Every encoding on the same cells: the vectors and the similarities that it gives the cells of a line or a grid.

    added, qk inputs    cosine of two vectors
    qk transforms       score of two equal vectors, over the largest
    bias                what is added to the scores; where it depends on the query, of a query of ones

A line of N tokens is a grid of 1 x N. A cell is `spacing` units wide: metres of the ground, degrees of the globe (the
grid begins on the equator at the meridian of Greenwich, rows go south), units of points. Encodings of sequences number
the cells row by row; those of graphs see each cell joined to the next ones in its row and column.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.positions.added.sinusoidal import SinusoidalPositions
from regard.positions.bias.transformer_xl import distance_vectors
from regard.positions.traits import PositionTraits

Grid = tuple[int, int]


def similarity(part: Any, grid: Grid, spacing: float = 1.0) -> Float[Tensor, "H N N"]:
    """Return what an encoding says of every pair of cells, queries by keys; one matrix if its heads are equal."""
    cells = grid[0] * grid[1]
    if part.kind == "none":
        return torch.zeros(1, cells, cells)
    if part.kind == "bias":
        return dense_bias(part, grid)
    if part.kind == "qk_transform":
        same = torch.ones(1, 1, cells, part.head_dim, dtype=torch.float64)
        turned = part.transform(same, torch.arange(cells)[None])
        return (turned @ turned.mT)[0] / part.head_dim
    vectors = cell_vectors(part, grid, spacing).double()
    unit = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-9)
    return (unit @ unit.mT)[None]


def cell_vectors(part: Any, grid: Grid, spacing: float = 1.0) -> Float[Tensor, "N C"]:
    """Return the vector of every cell, row by row."""
    traits: PositionTraits = part.traits
    if traits.encodes == "sequence":
        found: Tensor = part.vectors(torch.arange(grid[0] * grid[1])[None])[0]
    elif traits.encodes == "grid":
        found = part.vectors(grid)
    elif traits.encodes == "graph":
        found = part(grid_edges(grid), grid[0] * grid[1])
    elif traits.encodes == "ground":
        found = part(grid, torch.tensor([spacing / part.patch_size]))[0]
    else:
        y, x = ((torch.arange(n) + 0.5) * spacing for n in grid)
        rows, columns = torch.meshgrid(y, x, indexing="ij")
        found = part(torch.stack([columns, -rows], -1).flatten(0, 1))
    return found


def dense_bias(part: Any, grid: Grid, q: Float[Tensor, "B H N D"] | None = None) -> Float[Tensor, "H N N"]:
    """Return the bias between all cells; of queries q (B 1) where it depends on them."""
    cells = grid[0] * grid[1]
    line = torch.arange(cells)[None]
    if part.traits.encodes == "window":
        if part.window != grid:
            raise BadInput(f"a window of {part.window} cells has no bias for one of {grid}; build one of that size")
        bias: Tensor = part()
    elif part.traits.encodes == "grid":  # decomposed
        bias = part.bias(_ones(1, cells, part.tables[0]) if q is None else q, grid, grid).dense()[0]
    elif isinstance(getattr(part, "distance", None), nn.Linear):  # Transformer-XL
        weight = part.distance.weight
        between = distance_vectors(SinusoidalPositions(weight.shape[1]), cells, cells, weight.device, weight.dtype)
        query = _ones(len(part.content_bias), cells, part.content_bias) if q is None else q
        bias = part.bias(query, between, cells, 1.0)[1].dense()[0]
    else:
        bias = part.bias(line, line).dense()[0]
    return bias


def grid_edges(grid: Grid) -> Int[Tensor, "2 E"]:
    """Return the edges, in both directions, of a grid whose cells are joined to their neighbours."""
    cells = torch.arange(grid[0] * grid[1]).unflatten(0, grid)
    across = torch.stack([cells[:, :-1].flatten(), cells[:, 1:].flatten()])
    down = torch.stack([cells[:-1].flatten(), cells[1:].flatten()])
    edges = torch.cat([across, down], 1)
    return torch.cat([edges, edges.flip(0)], 1)


def _ones(heads: int, cells: int, like: Tensor) -> Float[Tensor, "1 H N D"]:
    return torch.ones(1, heads, cells, like.shape[-1], dtype=like.dtype, device=like.device)
