"""Decomposed relative positions: a learned vector for each distance along each axis of a grid, times the query.

    relative      s_nm = q_n · k_m + r[m - n]                                       one number a distance
    decomposed    s_nm = q_n · k_m + q_n · R_y[y_n - y_m] + q_n · R_x[x_n - x_m]      one vector a distance, an axis

A joint table would have (2 Y - 1)(2 X - 1) rows, the two have 2 Y - 1 and 2 X - 1; a clip has a third, for time. Where
queries and keys were pooled differently, distances are counted in cells of the finer of the two. Tables are stretched
linearly to grids of other sizes.

The bias is a dot product as well: with e_y and e_x the unit vectors of a key's row and column,

    s_nm = [q_n, q_n R_y, q_n R_x] · [k_m, e_y(m), e_x(m)]

so it can be folded into q and k (`fold_into_qk`) for fused kernels without a bias: nothing of size N × M is
materialised.

Li, Wu, Fan, Mangalam, Xiong, Malik, Feichtenhofer: MViTv2: Improved Multiscale Vision Transformers for Classification
and Detection. CVPR 2022. arXiv:2112.01526
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.positions.traits import PositionTraits

Shape = tuple[int, ...]


class DecomposedPositions(nn.Module):
    """A table for each axis; `max_grid` is the number of queries or keys (the larger) along each."""

    kind: ClassVar[str] = "bias"
    traits: ClassVar = PositionTraits("grid", learned="table", other_sizes="resized", invariant=frozenset({"shift"}))
    no_weight_decay = ("tables",)

    def __init__(self, head_dim: int, max_grid: Sequence[int]) -> None:
        super().__init__()
        self.tables = nn.ParameterList([nn.Parameter(torch.empty(2 * n - 1, head_dim)) for n in max_grid])
        for table in self.tables:
            nn.init.trunc_normal_(table, std=0.02)

    def bias(self, q: Float[Tensor, "B H N D"], queries: Shape, keys: Shape) -> DecomposedBias:
        """Return the bias of queries on one grid towards keys on another; 0 for tokens before the grid."""
        if 0 in (*queries, *keys):
            raise BadInput(f"a grid needs at least one cell along each axis, got {queries} and {keys}")
        before = q.shape[2] - prod(queries)
        on_grid = q[:, :, before:].unflatten(2, queries)
        parts, letters = [], "tyx"[3 - len(queries) :]
        for axis, (table, n, m) in enumerate(zip(self.tables, queries, keys, strict=True)):
            vectors = _resize_table(table, 2 * max(n, m) - 1)[relative_distances(n, m, q.device)].to(q.dtype)  # n m D
            part = torch.einsum(f"bh{letters}d,{letters[axis]}kd->bh{letters}k", on_grid, vectors).flatten(2, -2)
            parts.append(F.pad(part, (0, 0, before, 0)) if before else part)
        return DecomposedBias(parts, keys, before)

    def extra_repr(self) -> str:
        return f"rows={', '.join(str(len(table)) for table in self.tables)}"


class DecomposedBias:
    """The bias of every query on the scores of each row, column (and frame) of keys; a `core.positions.Bias`."""

    def __init__(self, parts: list[Float[Tensor, "B H N _"]], keys: Shape, before: int) -> None:
        self.parts, self.keys, self.before = parts, keys, before

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "B H N M"]:
        total: Tensor | None = None
        for axis, part in enumerate(self.parts):
            part = part[:, :, rows].unflatten(-1, [n if a == axis else 1 for a, n in enumerate(self.keys)])
            total = part if total is None else total + part
        assert total is not None
        flat = total.flatten(3)
        return F.pad(flat, (self.before, 0)) if self.before else flat

    def fold_into_qk(
        self, q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H M D"], scale: float
    ) -> tuple[Tensor, Tensor]:
        """Return q and k with one more coordinate for each row and column, so that scale (q · k) includes the bias.

        D is padded with zeros to a multiple of 8, which the fastest kernels require.
        """
        padding = -(q.shape[-1] + sum(self.keys)) % 8
        q_parts = [q, *(part.to(q.dtype) / scale for part in self.parts), q.new_zeros(*q.shape[:3], padding)]
        eyes = [torch.eye(n, dtype=k.dtype, device=k.device) for n in self.keys]
        rows = torch.cat([eye[at] for eye, at in zip(eyes, _coordinates(self.keys, k.device), strict=True)], -1)
        one_hot = F.pad(rows, (0, padding, self.before, 0)).expand(*k.shape[:2], -1, -1)
        return torch.cat(q_parts, -1), torch.cat([k, one_hot], -1)

    def score_mod(self) -> Callable[..., Tensor]:
        parts, before = self.parts, self.before
        coordinates = [F.pad(at, (before, 0)) for at in _coordinates(self.keys, parts[0].device)]

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            total = parts[0][b, h, n, coordinates[0][m]]
            for part, at in zip(parts[1:], coordinates[1:], strict=True):
                total = total + part[b, h, n, at[m]]
            return score + torch.where(m < before, 0.0, total)

        return add


def relative_distances(n: int, m: int, device: torch.device | None = None) -> Int[Tensor, "n m"]:
    """Return query i minus key j along an axis, in cells of the finer of the two grids, as rows of a table: from 0."""
    i, j = torch.arange(n, device=device)[:, None], torch.arange(m, device=device)
    return (i * m + (m - 1 - j) * n) // min(n, m)


def _coordinates(grid: Shape, device: torch.device) -> list[Int[Tensor, " M"]]:
    """Return the row, the column (and the frame) of every cell of a grid."""
    lines = torch.meshgrid(*(torch.arange(n, device=device) for n in grid), indexing="ij")
    return [line.flatten() for line in lines]


def _resize_table(table: Float[Tensor, "R D"], rows: int) -> Float[Tensor, "rows D"]:
    """Interpolate a table linearly to another number of rows."""
    if not isinstance(rows, torch.SymInt) and len(table) == rows:
        return table
    return F.interpolate(table.T[None], size=rows, mode="linear")[0].T
