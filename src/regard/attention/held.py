"""One map that can be asked for: what it is made of is held, and any rows or columns are computed when they are wanted.

    Asked       of a mechanism: q and k, and what else its `weights` takes; a row costs H M D multiplications
    Recorded    of an aligner, whose rows depend on one another, and of weights that were formed: they themselves

Where tokens were regrouped (windows, pooling) rows and columns are cells of the grid, through the layer's geometry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from regard.attention.capture import in_chunks
from regard.attention.protocol import Mechanism
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Float, Rows, Tensor
from regard.core.trace import Geometry, Trace
from regard.core.where import Bias


@dataclass(frozen=True, eq=False, kw_only=True)
class Held:
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

    def lines(
        self, queries: Sequence[int], heads: Sequence[int] | None = None, valued: bool = False
    ) -> Float[Tensor, "B H n M"]:
        """Some rows of the map over all its columns; `valued`: every weight times the length of its value."""
        _within(queries, self.rows, "query")
        w = self._valued(self.weights(heads, list(queries) if self.geometry is None else None), heads, valued)
        if self.geometry is None:
            return w
        asked = w.new_zeros(1, 1, len(queries), self.rows)
        asked[0, 0, range(len(queries)), list(queries)] = 1
        return self.geometry.pull(w, asked.expand(w.shape[0] // self.geometry.queries.cells.shape[1], -1, -1, -1))

    def columns_of(self, keys: Sequence[int], head: int, valued: bool = False) -> Float[Tensor, "B N n"]:
        """Some columns of one head over all its rows."""
        _within(keys, self.columns, "key")
        w = self._valued(self.weights([head]), [head], valued)
        if self.geometry is None:
            return w[:, 0, :, list(keys)]
        own = self.geometry
        asked = w.new_zeros(1, len(keys), self.columns)
        asked[0, range(len(keys)), list(keys)] = 1
        groups = w[:, 0].unflatten(0, (-1, own.queries.cells.shape[1]))  # B G N M
        slots = own.keys.read(asked.expand(len(groups), -1, -1))  # B n G M
        return own.queries.spread(torch.einsum("bgnm,bkgm->bkgn", groups, slots)).mT

    def _valued(self, w: Float[Tensor, "B h n M"], heads: Sequence[int] | None, valued: bool) -> Tensor:
        if not valued:
            return w
        lengths = self.values_norm()
        return w * (lengths if heads is None else lengths[:, list(heads)])[:, :, None]

    def column(self, head: int, key: int) -> Float[Tensor, "B N"]:
        """Who looked at one key, and how much."""
        return self.columns_of([key], head)[..., 0]

    def values_norm(self) -> Float[Tensor, "B H M"]:
        """How long the value of every key is behind the output projection: what a weight of one would add."""
        if self.norms is None:
            why = "an aligner's values pass no output projection" if self.kind == "align" else "it was not asked for"
            raise Unsupported(f"'{self.name}' has no lengths of values: {why}")
        return self.norms

    def trace(self) -> Trace:
        """The whole map, as `watch` gives it."""
        return Trace(self.name, self.weights(), self.kind, geometry=self.geometry, exact=self.exact)


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked(Held):
    """A mechanism's map: q, k and what else its `weights` takes."""

    q: Float[Tensor, "B H N D"]
    k: Float[Tensor, "B G M D"]
    rest: Mapping[str, Any]
    module: Mechanism
    compute: Callable[..., Tensor]  # the mechanism's `weights` as it was: whatever was put in its place stays known
    apart: bool  # whether heads may be had one by one

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
    def columns_of(self, keys: Sequence[int], head: int, valued: bool = False) -> Float[Tensor, "B N n"]:
        """Some columns of one head over all its rows.

        A mechanism is linear in v: attending to values that are one at these keys gives their columns, through the
        fused kernels and without a matrix. They differ from `weights` in the last digit.
        """
        rest, own = self.rest, self.module
        if self.geometry is not None or not self.apart or own.training or rest.get("bias") is not None:
            return super().columns_of(keys, head, valued)
        _within(keys, self.columns, "key")
        _within([head], self.heads, "head")
        group = head // (self.heads // self.k.shape[1])
        q, k = self.q[:, [head]], self.k[:, [group]]
        v = q.new_zeros(len(k), 1, k.shape[2], len(keys))
        v[:, 0, list(keys), range(len(keys))] = self.values_norm()[:, head, list(keys)].to(v) if valued else 1
        return own.forward(q, k, v, rest.get("mask"), memo=rest.get("memo"))[:, 0]

    @torch.no_grad()
    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """The matrix that the mechanism applied, of these heads and query rows (None: all)."""
        rows: Rows = slice(None) if queries is None else queries
        if heads is None:
            return in_chunks(self.compute, self.module.traits.rowwise, self.q, self.k, self.rest, rows)
        _within(heads, self.heads, "head")
        if not self.apart:
            return self.weights(None, rows)[:, list(heads)]
        each = self.heads // self.k.shape[1]
        q, k = self.q[:, list(heads)], self.k[:, [head // each for head in heads]]
        rest = dict(self.rest)
        if rest.get("bias") is not None:
            rest["bias"] = OfHeads(rest["bias"], list(heads))
        return in_chunks(self.compute, self.module.traits.rowwise, q, k, rest, rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded(Held):
    """A map as it was: the rows that an aligner made in a pass, or all that a model of others formed at once."""

    found: tuple[Float[Tensor, "B H n M"], ...]

    @property
    def slots(self) -> tuple[int, int]:
        """Rows and columns of the weights themselves."""
        return sum(row.shape[2] for row in self._whole), self.found[-1].shape[3]

    @property
    def bytes(self) -> int:
        """What is held."""
        return sum(row.numel() * row.element_size() for row in self.found)

    @property
    def _whole(self) -> tuple[Tensor, ...]:
        """A row for each call; while several beams are written side by side there is no such map: the latest call."""
        first = self.found[0].shape
        uneven = any(row.shape[2] > 1 or row.shape != first for row in self.found)
        return self.found[-1:] if uneven else self.found

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """The rows that were recorded."""
        whole = torch.cat(self._whole, dim=2)
        whole = whole if queries is None else whole[:, :, queries]
        return whole if heads is None else whole[:, list(heads)]


class OfHeads:
    """A bias of some of the heads."""

    def __init__(self, bias: Bias, heads: list[int]) -> None:
        self.bias, self.heads = bias, heads

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        """The bias of the asked query rows."""
        every = self.bias.dense(rows)
        return every if every.shape[1] == 1 else every[:, self.heads]

    def score(self) -> None:
        """It has no formula of its own."""
        return None


def _within(asked: Sequence[int], many: int, what: str) -> None:
    for one in asked:
        if not 0 <= one < many:
            raise BadInput(f"there is no {what} {one}; there are 0 to {many - 1}")
