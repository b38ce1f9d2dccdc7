"""One map that can be asked for: what it is made of is held, and any rows or columns are computed when they are wanted.

    Asked       of a mechanism: q and k, and what else its `map_rows` takes; a row costs H M D multiplications
    Recorded    of an aligner, whose rows depend on one another, and of weights that were formed: they themselves

Where tokens were regrouped (windows, pooling) rows and columns are cells of the grid, through the layer's geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from regard.attention.capture.watch import weights_in_chunks
from regard.attention.protocol import Mechanism
from regard.core.errors import BadInput, Unsupported
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.trace import Geometry, Trace


@dataclass(frozen=True, eq=False, kw_only=True)
class LazyMap:
    """One map that can be asked for. Rows and columns are cells of the grid where tokens were regrouped."""

    name: str
    kind: str  # self, cross or align
    heads: int
    geometry: Geometry | None = None
    exact: bool = True
    normalised: bool = True  # rows sum to one
    norms: Float[Tensor, "B H M"] | None = None  # of the values behind the output projection, where asked for

    @property
    def rows(self) -> int:
        """How many queries there are."""
        return self.slots[0] if self.geometry is None else prod(self.geometry.queries.grid)

    @property
    def columns(self) -> int:
        """How many keys there are."""
        return self.slots[1] if self.geometry is None else prod(self.geometry.keys.grid)

    @property
    def slots(self) -> tuple[int, int]:
        """Rows and columns of the weights themselves, of one group where tokens were regrouped."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """What is held."""
        raise NotImplementedError

    @property
    def rowwise(self) -> bool:
        """Whether some rows cost less than all: not where tokens were regrouped, or rows depend on one another."""
        return self.geometry is None

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """The matrix, of these heads and query rows (None: all)."""
        raise NotImplementedError

    def rows_of(
        self, queries: Sequence[int], heads: Sequence[int] | None = None, times_value_norm: bool = False
    ) -> Float[Tensor, "B H n M"]:
        """Some rows of the map over all its columns; `valued`: every weight times the length of its value."""
        _check_range(queries, self.rows, "query")
        w = self._times_value_norm(
            self.weights(heads, list(queries) if self.geometry is None else None), heads, times_value_norm
        )
        if self.geometry is None:
            return w
        asked = w.new_zeros(1, 1, len(queries), self.rows)
        asked[0, 0, range(len(queries)), list(queries)] = 1
        return self.geometry.left_multiply(
            w, asked.expand(w.shape[0] // self.geometry.queries.cells.shape[1], -1, -1, -1)
        )

    def columns_of(self, keys: Sequence[int], head: int, times_value_norm: bool = False) -> Float[Tensor, "B N n"]:
        """Some columns of one head over all its rows."""
        _check_range(keys, self.columns, "key")
        w = self._times_value_norm(self.weights([head]), [head], times_value_norm)
        if self.geometry is None:
            return w[:, 0, :, list(keys)]
        own = self.geometry
        asked = w.new_zeros(1, len(keys), self.columns)
        asked[0, range(len(keys)), list(keys)] = 1
        groups = w[:, 0].unflatten(0, (-1, own.queries.cells.shape[1]))  # B G N M
        slots = own.keys.gather(asked.expand(len(groups), -1, -1))  # B n G M
        return own.queries.scatter(torch.einsum("bgnm,bkgm->bkgn", groups, slots)).mT

    def _times_value_norm(
        self, w: Float[Tensor, "B h n M"], heads: Sequence[int] | None, times_value_norm: bool
    ) -> Tensor:
        if not times_value_norm:
            return w
        lengths = self.value_norms()
        return w * (lengths if heads is None else lengths[:, list(heads)])[:, :, None]

    def column(self, head: int, key: int) -> Float[Tensor, "B N"]:
        """Who looked at one key, and how much."""
        return self.columns_of([key], head)[..., 0]

    def value_norms(self) -> Float[Tensor, "B H M"]:
        """How long the value of every key is behind the output projection: what a weight of one would add."""
        if self.norms is None:
            why = "an aligner's values pass no output projection" if self.kind == "align" else "it was not asked for"
            raise Unsupported(f"'{self.name}' has no lengths of values: {why}")
        return self.norms

    def trace(self) -> Trace:
        """The whole map, as `watch` gives it."""
        return Trace(self.name, self.weights(), self.kind, geometry=self.geometry, exact=self.exact)


@dataclass(frozen=True, eq=False, kw_only=True)
class ComputedMap(LazyMap):
    """A mechanism's map: q, k and what else its `map_rows` takes."""

    q: Float[Tensor, "B H N D"]
    k: Float[Tensor, "B G M D"]
    weights_kwargs: Mapping[str, Any]
    module: Mechanism
    compute: Callable[..., Tensor]  # the mechanism's `map_rows` as it was: whatever was put in its place stays known
    headwise: bool  # whether heads may be had one by one

    @property
    def slots(self) -> tuple[int, int]:
        """Rows and columns of the weights themselves."""
        return self.q.shape[2], self.k.shape[2]

    @property
    def bytes(self) -> int:
        """What is held."""
        return sum(x.numel() * x.element_size() for x in (self.q, self.k, self.norms) if x is not None)

    @property
    def rowwise(self) -> bool:
        """Whether some rows cost less than all."""
        return super().rowwise and self.module.traits.rowwise

    @torch.no_grad()
    def columns_of(self, keys: Sequence[int], head: int, times_value_norm: bool = False) -> Float[Tensor, "B N n"]:
        """Some columns of one head over all its rows.

        A mechanism is linear in v: attending to values that are one at these keys gives their columns, through the
        fused kernels and without a matrix. They differ from `map_rows` in the last digit.
        """
        weights_kwargs, own = self.weights_kwargs, self.module
        if self.geometry is not None or not self.headwise or own.training or weights_kwargs.get("bias") is not None:
            return super().columns_of(keys, head, times_value_norm)
        _check_range(keys, self.columns, "key")
        _check_range([head], self.heads, "head")
        group = head // (self.heads // self.k.shape[1])
        q, k = self.q[:, [head]], self.k[:, [group]]
        v = q.new_zeros(len(k), 1, k.shape[2], len(keys))
        v[:, 0, list(keys), range(len(keys))] = self.value_norms()[:, head, list(keys)].to(v) if times_value_norm else 1
        return own.forward(q, k, v, weights_kwargs.get("mask"), layer_state=weights_kwargs.get("layer_state"))[:, 0]

    @torch.no_grad()
    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """The matrix that the mechanism applied, of these heads and query rows (None: all)."""
        rows: Rows = slice(None) if queries is None else queries
        if heads is None:
            return weights_in_chunks(
                self.compute, self.module.traits.rowwise, self.q, self.k, self.weights_kwargs, rows
            )
        _check_range(heads, self.heads, "head")
        if not self.headwise:
            return self.weights(None, rows)[:, list(heads)]
        each = self.heads // self.k.shape[1]
        q, k = self.q[:, list(heads)], self.k[:, [head // each for head in heads]]
        weights_kwargs = dict(self.weights_kwargs)
        if weights_kwargs.get("bias") is not None:
            weights_kwargs["bias"] = HeadSlicedBias(weights_kwargs["bias"], list(heads))
        return weights_in_chunks(self.compute, self.module.traits.rowwise, q, k, weights_kwargs, rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredMap(LazyMap):
    """A map as it was: the rows that an aligner made in a pass, or all that a model of others formed at once."""

    recorded: tuple[Float[Tensor, "B H n M"], ...]

    @property
    def slots(self) -> tuple[int, int]:
        """Rows and columns of the weights themselves."""
        return sum(row.shape[2] for row in self._whole), self.recorded[-1].shape[3]

    @property
    def bytes(self) -> int:
        """What is held."""
        return sum(row.numel() * row.element_size() for row in self.recorded)

    @property
    def _whole(self) -> tuple[Tensor, ...]:
        """A row for each call; while several beams are written side by side there is no such map: the latest call."""
        first = self.recorded[0].shape
        uneven = any(row.shape[2] > 1 or row.shape != first for row in self.recorded)
        return self.recorded[-1:] if uneven else self.recorded

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """The rows that were recorded."""
        whole = torch.cat(self._whole, dim=2)
        whole = whole if queries is None else whole[:, :, queries]
        return whole if heads is None else whole[:, list(heads)]


class HeadSlicedBias:
    """A bias of some of the heads."""

    def __init__(self, bias: Bias, heads: list[int]) -> None:
        self.bias, self.heads = bias, heads

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        """The bias of the asked query rows."""
        every = self.bias.dense(rows)
        return every if every.shape[1] == 1 else every[:, self.heads]

    def score_mod(self) -> None:
        """It has no formula of its own."""
        return None


def _check_range(asked: Sequence[int], many: int, what: str) -> None:
    for one in asked:
        if not 0 <= one < many:
            raise BadInput(f"there is no {what} {one}; there are 0 to {many - 1}")
