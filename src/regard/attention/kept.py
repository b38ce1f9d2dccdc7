"""Keeping what attention was made of, instead of the attention: any row of any map can be had later, exactly.

    with kept(model) as store:
        model(source, target)
    store["decoder.blocks.2.cross"].weights(queries=[7])        B H 1 M, to the bit what `watch` gives for that row

    all maps of a pass       L H N M numbers          N = M = 4,096, 24 layers of 16 heads, float32: 26 GB
    what is kept here        L (H N + G M) D          the same, D = 64: 0.8 GB; a row costs H M D multiplications

A mechanism's `weights` needs q and k, the mask, the bias and the memo of its call: these are held, q and k as copies (a
cache is written on, and a view would hold v too). With `values` the length of every value behind the output projection
is held as well, so that maps can say what was moved and not only what was looked at (Kobayashi et al.). An aligner's
rows depend on one another, so those are held themselves. Of a model that runs many times (writing, say) the latest pass
is held. More than `most` bytes are refused.

Kobayashi, Kuribayashi, Yokoi, Inui: Attention is Not Only a Weight: Analyzing Transformers with Vector Norms. EMNLP
2020. arXiv:2004.10102
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from regard.attention.capture import Call, Onlooker, hooked, in_chunks
from regard.attention.protocol import Mechanism
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.core.shapes import Float, Rows, Tensor
from regard.core.trace import Geometry, Trace, moved
from regard.core.where import Bias

MOST = 4 * 2**30  # bytes that a store holds unless told otherwise


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

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """The matrix, of these heads and query rows (None: all)."""
        raise NotImplementedError

    def lines(self, queries: Sequence[int], heads: Sequence[int] | None = None) -> Float[Tensor, "B H n M"]:
        """Some rows of the map over all its columns; the same as `weights` where tokens were not regrouped."""
        _within(queries, self.rows, "query")
        if self.geometry is None:
            return self.weights(heads, list(queries))
        w = self.weights(heads)
        asked = w.new_zeros(1, 1, len(queries), self.rows)
        asked[0, 0, range(len(queries)), list(queries)] = 1
        return self.geometry.pull(w, asked.expand(w.shape[0] // self.geometry.queries.cells.shape[1], -1, -1, -1))

    def columns_of(self, keys: Sequence[int], head: int) -> Float[Tensor, "B N n"]:
        """Some columns of one head over all its rows."""
        _within(keys, self.columns, "key")
        if self.geometry is None:
            return self.weights([head])[:, 0, :, list(keys)]
        w, own = self.weights([head]), self.geometry
        asked = w.new_zeros(1, len(keys), self.columns)
        asked[0, range(len(keys)), list(keys)] = 1
        groups = w[:, 0].unflatten(0, (-1, own.queries.cells.shape[1]))  # B G N M
        slots = own.keys.read(asked.expand(len(groups), -1, -1))  # B n G M
        return own.queries.spread(torch.einsum("bgnm,bkgm->bkgn", groups, slots)).mT

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

    @torch.no_grad()
    def columns_of(self, keys: Sequence[int], head: int) -> Float[Tensor, "B N n"]:
        """Some columns of one head over all its rows.

        A mechanism is linear in v: attending to values that are one at these keys gives their columns, through the
        fused kernels and without a matrix. They differ from `weights` in the last digit.
        """
        rest, own = self.rest, self.module
        if self.geometry is not None or not self.apart or own.training or rest.get("bias") is not None:
            return super().columns_of(keys, head)
        _within(keys, self.columns, "key")
        _within([head], self.heads, "head")
        group = head // (self.heads // self.k.shape[1])
        q, k = self.q[:, [head]], self.k[:, [group]]
        v = q.new_zeros(len(k), 1, k.shape[2], len(keys))
        v[:, 0, list(keys), range(len(keys))] = 1
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
    """An aligner's map: the rows of the pass, as they were."""

    found: tuple[Float[Tensor, "B 1 n M"], ...]

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


class Kept(Mapping[str, Held]):
    """What was kept, by the name of the part that looked."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._order: list[Held | Trace] = []  # of the latest pass, with what moved tokens in between

    def __getitem__(self, name: str) -> Held:
        if name not in self._held:
            raise KeyError(f"nothing was kept of '{name}'; kept: {', '.join(self._held) or 'nothing'}")
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: Held) -> None:
        """Hold one more; where there is one of its name, in its place."""
        self._order = [step for step in self._order if step is not self._held.get(held.name)]
        self._order.append(held)
        self._held[held.name] = held

    def names(self) -> list[str]:
        """All that attended, in the order it ran."""
        return list(self._held)

    def steps(self) -> list[Held | Trace]:
        """The latest pass in the order it ran: what attended, and as traces what only moved tokens (patches cut,
        neighbours merged)."""
        return list(self._order)

    def passed(self) -> list[Trace]:
        """All maps of the latest pass in full, with what moved tokens between them, in the order they ran."""
        return [step.trace() if isinstance(step, Held) else step for step in self._order]

    @property
    def bytes(self) -> int:
        """What is held in all."""
        return sum(held.bytes for held in self._held.values())


@contextmanager
def kept(model: nn.Module, only: str = "*", *, values: bool = False, most: int = MOST) -> Iterator[Kept]:
    """Hold what the maps of everything in `model` are made of that attends and whose path matches `only`.

    With `values`, the lengths of the values behind the output projection too; more than `most` bytes are refused.
    """
    store = Kept()
    with hooked(model, only, _Keeping(store, values, most)):
        yield store
    if not store:
        raise RegardError("the model did not run inside the block, so nothing was kept")


class _Keeping(Onlooker):
    """One that holds what it is told of, the latest call of each part."""

    def __init__(self, store: Kept, values: bool, most: int) -> None:
        self.store, self.values, self.most = store, values, most
        self.fresh: set[str] = set()  # aligners that have not looked yet in this pass

    def begin(self) -> None:
        self.store._order = []
        self.fresh = {name for name, held in self.store.items() if held.kind == "align"}

    def attends(self, call: Call) -> None:
        q, k = (x.detach().clone(memory_format=torch.contiguous_format) for x in call.args[:2])
        norms = None
        if self.values:
            with torch.no_grad():
                norms = _lengths(call, q.shape[1])
        own = call.module
        held = Asked(
            name=call.name,
            kind=call.kind,
            heads=q.shape[1],
            geometry=call.geometry,
            exact=call.exact,
            normalised=own.traits.normalised,
            norms=norms,
            q=q,
            k=k,
            rest=call.rest,
            module=own,
            compute=own.weights,
            apart=own.traits.headwise and "weights" not in vars(own),
        )
        self._keep(held)

    def aligned(self, name: str, module: Any, weights: Tensor, state: Any) -> None:
        before = self.store._held.get(name)
        earlier = before.found if isinstance(before, Recorded) and name not in self.fresh else ()
        self.fresh.discard(name)
        normal = bool(getattr(module, "normalised", True))
        found = (*earlier, weights.detach()[:, None].clone())
        self._keep(Recorded(name=name, kind="align", heads=1, normalised=normal, found=found))

    def moves(self, name: str, module: Any, x: Tensor) -> None:
        exact = bool(getattr(module, "exact_geometry", True))
        self.store._order.append(moved(name, module.slots(x), x.shape[0], x, exact))

    def _keep(self, held: Held) -> None:
        self.store.add(held)
        if held.kind != "align" and self.store.bytes > self.most:
            raise BadInput(
                f"what this model's attention is made of takes more than {self.most / 2**20:.0f} MiB here; "
                "give a shorter input, or keep fewer parts (only=)"
            )


def _lengths(call: Call, heads: int) -> Float[Tensor, "B H M"] | None:
    """How long every value of every head is behind the output projection; None where there is no such projection."""
    join = getattr(call.mixer, "join", None)
    out = getattr(join, "out", None) if join is not None else getattr(call.mixer, "out", None)
    if not isinstance(out, nn.Linear):
        return None
    v = call.v.detach()
    v = v.repeat_interleave(heads // v.shape[1], dim=1)  # B H M E
    parts = out.weight.detach().unflatten(1, (heads, -1))  # C H E
    # |W v|² = vᵀ (Wᵀ W) v: a matrix of a head's width instead of the model's
    square = torch.einsum("che,chf->hef", parts.double(), parts.double())
    found = torch.einsum("bhme,hef,bhmf->bhm", v.double(), square, v.double())
    return found.clamp(min=0).sqrt().to(torch.promote_types(v.dtype, torch.float32))


def _within(asked: Sequence[int], many: int, what: str) -> None:
    for one in asked:
        if not 0 <= one < many:
            raise BadInput(f"there is no {what} {one}; there are 0 to {many - 1}")
