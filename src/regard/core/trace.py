"""A captured attention matrix, with the input cells that its rows and columns stand for.

Rows and columns of a windowed, shifted, pooled or merged layer are not those of the input. `Geometry` maps each slot to
input cells, so that every layer becomes one operator on the input grid and rollout is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from regard.core import html
from regard.core.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Slots:
    """Slot n of group g is the sum over p of share * input cell ``cells[b, g, n, p]``; -1 is padding."""

    cells: Int[Tensor, "#B G N P"]
    grid: tuple[int, ...]  # what the cells count: (Y, X), (T,), (points,), ...
    share: Float[Tensor, "#B G N P"] | None = None  # None: the mean of the P cells

    def shares(self, dtype: torch.dtype = torch.float32) -> Float[Tensor, "#B G N P"]:
        """Return the share of every cell; 0 for padding."""
        real = (self.cells >= 0).to(dtype)
        if self.share is not None:
            return self.share.to(dtype) * real
        return real / real.sum(-1, keepdim=True).clamp(min=1)

    def gather(self, values: Float[Tensor, "B *any inn"]) -> Float[Tensor, "B *any G N"]:
        """Return the value of each slot, given the values of the cells."""
        cells = self._align(self.cells, values)  # #B *1 G N P
        index = cells.clamp(min=0).expand(*values.shape[:-1], *cells.shape[-3:])
        found = values.gather(-1, index.flatten(-3)).unflatten(-1, cells.shape[-3:])
        return (found * self._align(self.shares(values.dtype), values)).sum(-1)  # padding has share 0

    def scatter(self, values: Float[Tensor, "B *any G N"]) -> Float[Tensor, "B *any inn"]:
        """Distribute the value of each slot to its cells by their shares: the transpose of `gather`."""
        flat = values.flatten(-2)
        cells, shares = (self._align(own, flat) for own in (self.cells, self.shares(values.dtype)))
        parts = values[..., None] * shares  # B *any G N P
        out = values.new_zeros(*flat.shape[:-1], prod(self.grid))
        return out.scatter_add_(-1, cells.clamp(min=0).expand(parts.shape).flatten(-3), parts.flatten(-3))

    @staticmethod
    def _align(own: Tensor, values: Tensor) -> Tensor:
        """Insert an axis of size 1 into cells or shares #B G N P for each of the axes `any` of values B *any x."""
        return own[(slice(None), *[None] * (values.ndim - 2))].to(values.device)

    def batch_item(self, batch: int) -> Slots:
        """Return the slots of one input of the batch."""

        def one(x: Tensor) -> Tensor:
            return x if x.shape[0] == 1 else x[batch : batch + 1]

        return replace(self, cells=one(self.cells), share=None if self.share is None else one(self.share))


@dataclass(frozen=True, eq=False)
class Geometry:
    """Where a mixer's queries write and what its keys were made of, in input cells."""

    queries: Slots  # P = 1: each query writes one output cell
    keys: Slots  # P >= 1: the cells each key was made of
    skip: Slots | None = None  # the residual connection, where the output grid is not the input grid

    def batch_item(self, batch: int) -> Geometry:
        return Geometry(
            self.queries.batch_item(batch),
            self.keys.batch_item(batch),
            None if self.skip is None else self.skip.batch_item(batch),
        )

    def operator(self, weights: Float[Tensor, "BG H N M"]) -> Float[Tensor, "B H out inn"]:
        """Return the matrix from input cells to output cells that these weights apply; rows are not renormalised."""
        groups = self.queries.cells.shape[1]
        w = weights.unflatten(0, (-1, groups)).transpose(1, 2)  # B H G N M
        rows, columns = prod(self.queries.grid), prod(self.keys.grid)
        cells = self.keys.cells[:, None, :, None]  # #B 1 G 1 M P
        parts = w[..., None] * self.keys.shares(w.dtype)[:, None, :, None]  # B H G N M P
        to = self.queries.cells[:, None, :, :, :1, None]  # #B 1 G N 1 1
        index = to * columns + cells
        real = (to >= 0) & (cells >= 0)
        index = torch.where(real, index, rows * columns).expand(parts.shape).flatten(2)  # one more bin, for padding
        flat = parts.new_zeros(*index.shape[:2], rows * columns + 1)
        flat.scatter_add_(2, index, (parts * real.to(parts.dtype)).flatten(2))
        return flat[..., :-1].unflatten(2, (rows, columns))

    def left_multiply(
        self, weights: Float[Tensor, "BG H N M"], rows: Float[Tensor, "B #H Q out"]
    ) -> Float[Tensor, "B H Q inn"]:
        """``rows @ operator(weights)`` without forming the operator, which is large where windows are many."""
        w = weights.unflatten(0, (-1, self.queries.cells.shape[1]))  # B G H N M
        return self.keys.scatter(torch.einsum("bhqgn,bghnm->bhqgm", self.queries.gather(rows), w))

    def row_sums(self, weights: Float[Tensor, "BG H N M"]) -> Float[Tensor, "B H out"]:
        """Return the row sums of ``operator(weights)``."""
        w = weights.unflatten(0, (-1, self.queries.cells.shape[1]))
        real = self.keys.shares(w.dtype).sum(-1)[
            :, :, None, None
        ]  # #B G 1 1 M: the part of each key that is no padding
        return self.queries.scatter((w * real).sum(-1).transpose(1, 2))


@dataclass(frozen=True, eq=False)
class Trace:
    """One attention map: `weights` B H N M, in [0, 1] for most mechanisms; rows are queries, columns are keys."""

    name: str  # the module's path: "decoder.blocks.5.cross"
    weights: Float[Tensor, "B H N M"]
    kind: str = "self"  # self, cross or align
    heads: tuple[int, ...] | None = None  # which heads were captured; None: all
    queries: tuple[int, ...] | None = None  # which query rows were captured; None: all
    geometry: Geometry | None = None
    exact: bool = True  # False: the geometry is a receptive field
    rows: tuple[str, ...] | None = None  # labels of the queries
    columns: tuple[str, ...] | None = None  # labels of the keys
    centres: Float[Tensor, "B H N P"] | None = None  # centres of an aligner that has them, in columns from 0
    gradient: Float[Tensor, "B H N M"] | None = None  # of an output, with respect to the weights

    def with_labels(self, rows: Sequence[str], columns: Sequence[str]) -> Trace:
        """Return the trace with labels for its rows and columns; those beyond the labels (padding) are cut off."""
        labelled = replace(self, rows=tuple(rows), columns=tuple(columns))
        if self.geometry is not None:
            return labelled
        w = self.weights[..., : len(rows), : len(columns)]
        centres = None if self.centres is None else self.centres[..., : len(rows), :]
        gradient = None if self.gradient is None else self.gradient[..., : len(rows), : len(columns)]
        return replace(labelled, weights=w, centres=centres, gradient=gradient)

    def batch_item(self, batch: int) -> Trace:
        """Return the trace of one input of the batch, with a batch axis of size 1."""
        if self.geometry is None:
            centres = None if self.centres is None else self.centres[batch : batch + 1]
            gradient = None if self.gradient is None else self.gradient[batch : batch + 1]
            return replace(self, weights=self.weights[batch : batch + 1], centres=centres, gradient=gradient)
        groups = self.geometry.queries.cells.shape[1]
        own = slice(batch * groups, (batch + 1) * groups)
        gradient = None if self.gradient is None else self.gradient[own]
        return replace(self, weights=self.weights[own], geometry=self.geometry.batch_item(batch), gradient=gradient)

    def operator(self) -> Float[Tensor, "B H out inn"]:
        """Return the map on the input grid; the weights themselves where tokens were not regrouped."""
        return self.weights if self.geometry is None else self.geometry.operator(self.weights)

    def left_multiply(
        self, rows: Float[Tensor, "B #H Q out"], weights: Tensor | None = None
    ) -> Float[Tensor, "B H Q inn"]:
        """Return ``rows @ operator()``, or that of other weights with the same geometry (fused heads, say)."""
        w = self.weights if weights is None else weights
        return rows @ w if self.geometry is None else self.geometry.left_multiply(w, rows)

    @property
    def num_inputs(self) -> int:
        """Number of cells that the layer reads."""
        return self.weights.shape[-1] if self.geometry is None else prod(self.geometry.keys.grid)

    @property
    def num_outputs(self) -> int:
        """Number of cells that the layer writes."""
        return self.weights.shape[-2] if self.geometry is None else prod(self.geometry.queries.grid)

    def _repr_html_(self) -> str:
        """Draw the heads as small maps and, where there are few labels, their mean as a labelled map."""
        batch = self.weights.shape[0] // (1 if self.geometry is None else self.geometry.queries.cells.shape[1])
        about = f"{self.kind}, {self.weights.shape[1]} heads, {self.num_outputs} rows, {self.num_inputs} columns"
        more = f", the first of {batch} inputs" if batch > 1 else ""
        title = f"<b>{html.escape(self.name)}</b> <span>{html.escape(about + more)}</span>"
        if not self.weights.numel():
            return f"<div>{title}</div>"
        w = self._drawable()
        numbers = self.heads if self.heads is not None and len(self.heads) == len(w) else tuple(range(len(w)))
        maps = "".join(html.heatmap(one, f"head {h}") for h, one in zip(numbers[: html.MAX_HEADS], w, strict=False))
        rest = f" and {len(w) - html.MAX_HEADS} heads more" if len(w) > html.MAX_HEADS else ""
        rows, columns, table = self.rows or (), self.columns or (), ""
        if w.shape[1:] == (len(rows), len(columns)) and max(len(rows), len(columns)) <= html.MAX_LABELS:
            table = html.labelled_heatmap(w.mean(0), rows, columns)
        return f"<div>{title}<br>{maps}{rest}{table}</div>"

    def _drawable(self) -> Float[Tensor, "H N M"]:
        """Return the maps of the first input: on the input grid or, where that is too large, of one window."""
        if self.geometry is None or self.weights.shape[1] * self.num_outputs * self.num_inputs > 2**22:
            return self.weights[0]
        return self.batch_item(0).operator()[0]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; weights are rounded to 5 digits."""
        plain = {"name": self.name, "kind": self.kind, "rows": self.rows, "columns": self.columns}
        arrays = {"weights": self.weights} | ({} if self.centres is None else {"centres": self.centres})
        return plain | {name: _rounded(array) for name, array in arrays.items()}


def regrouping_trace(name: str, slots: Slots, batch: int, like: Tensor, exact: bool = True) -> Trace:
    """Return the trace of a module that only regroups tokens (patches, merging): the identity, with its geometry."""
    cells, share = slots.cells.flatten(1, 2), None if slots.share is None else slots.share.flatten(1, 2)
    count = cells.shape[1]
    own = torch.arange(count, device=cells.device)[None, :, None, None]  # a group a slot, of one query and one key
    keys = Slots(cells[:, :, None], slots.grid, None if share is None else share[:, :, None])
    one = like.new_ones((), dtype=torch.promote_types(like.dtype, torch.float32)).expand(batch * count, 1, 1, 1)
    return Trace(name, one, "move", geometry=Geometry(Slots(own, (count,)), keys), exact=exact)


def receptive_fields(
    shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], device: torch.device
) -> Int[Tensor, "N P"]:
    """Return the grid cells that a filter covers at each of N places, the first centred on cell 0; -1 is outside."""
    cells = torch.zeros((1, 1), dtype=torch.long, device=device)
    for n, k, s in zip(shape, kernel, stride, strict=True):
        at = torch.arange(0, n, s, device=device)[:, None] - k // 2 + torch.arange(k, device=device)
        at, before = at[:, None], cells[:, None, :, None]  # places so far, places here, taps so far, taps here
        real = (at >= 0) & (at < n) & (before >= 0)
        cells = torch.where(real, before * n + at, -1).flatten(2).flatten(0, 1)
    return cells


def _rounded(array: Float[Tensor, "B H N M"]) -> list[list[list[list[float]]]]:
    return [[[[round(v, 5) for v in r] for r in h] for h in b] for b in array.double().cpu().tolist()]
