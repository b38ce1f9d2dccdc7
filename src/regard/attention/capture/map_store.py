"""Maps on demand: store what attention is made of instead of the attention; any row can be computed later, exactly.

    with watch_lazy(model) as store:
        model(source, target)
    store["decoder.blocks.2.cross"].weights(queries=[7])        B H 1 M, equal to the bit to that row in `watch`

    all maps of a pass       L H N M numbers          N = M = 4,096, 24 layers of 16 heads, float32: 26 GB
    what is stored here      L (H N + G M) D          the same, D = 64: 0.8 GB; a row costs H M D multiplications

`weights` of a mechanism needs q and k, the mask, the bias and the layer state of its call: these are stored, q and k as
copies (a cache is overwritten, and a view would keep v alive too). With `values`, so is the norm of every value after
the output projection, so that maps can show what was moved, not only what was attended to (Kobayashi et al.). Rows of
an aligner depend on one another and are stored themselves. Of a model that runs many times (decoding) the latest pass
is stored. Where tokens were regrouped (windows, pooling), rows and columns are cells of the grid.

Kobayashi, Kuribayashi, Yokoi, Inui: Attention is Not Only a Weight: Analyzing Transformers with Vector Norms. EMNLP
2020. arXiv:2004.10102
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn

from regard.attention.capture import AttentionCall, AttentionObserver, DeformableCall
from regard.attention.capture.watch import nothing_captured_hint, observe_attention, weights_in_chunks
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.protocol import Mechanism
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.trace import Geometry, Trace, regrouping_trace

MAX_BYTES = 4 * 2**30  # bytes that a store takes by default


@dataclass(frozen=True, eq=False, kw_only=True)
class LazyMap:
    """One map, of which rows and columns are computed on demand; of regrouped tokens they are cells of the grid."""

    name: str
    kind: str  # self, cross or align
    heads: int
    geometry: Geometry | None = None
    exact: bool = True
    normalised: bool = True  # rows sum to one
    norms: Float[Tensor, "B H M"] | None = None  # of the values after the output projection, with `values`

    @property
    def rows(self) -> int:
        """Number of queries."""
        return self.slots[0] if self.geometry is None else prod(self.geometry.queries.grid)

    @property
    def columns(self) -> int:
        """Number of keys."""
        return self.slots[1] if self.geometry is None else prod(self.geometry.keys.grid)

    @property
    def slots(self) -> tuple[int, int]:
        """Rows and columns of the weights themselves (of one group, if tokens were regrouped)."""
        raise NotImplementedError

    @property
    def bytes(self) -> int:
        """Size of what is stored."""
        raise NotImplementedError

    @property
    def rowwise(self) -> bool:
        """Whether some rows cost less than all: not if tokens were regrouped or rows depend on one another."""
        return self.geometry is None

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """Return the matrix of these heads and query rows (None: all)."""
        raise NotImplementedError

    def rows_of(
        self, queries: Sequence[int], heads: Sequence[int] | None = None, times_value_norm: bool = False
    ) -> Float[Tensor, "B H n M"]:
        """Return some rows of the map; with `times_value_norm`, every weight times the norm of its value."""
        _check_range(queries, self.rows, "query")
        w = self._times_value_norm(
            self.weights(heads, list(queries) if self.geometry is None else None), heads, times_value_norm
        )
        if self.geometry is None:
            return w
        one_hot = w.new_zeros(1, 1, len(queries), self.rows)
        one_hot[0, 0, range(len(queries)), list(queries)] = 1
        return self.geometry.left_multiply(
            w, one_hot.expand(w.shape[0] // self.geometry.queries.cells.shape[1], -1, -1, -1)
        )

    def columns_of(self, keys: Sequence[int], head: int, times_value_norm: bool = False) -> Float[Tensor, "B N n"]:
        """Return some columns of one head."""
        _check_range(keys, self.columns, "key")
        w = self._times_value_norm(self.weights([head]), [head], times_value_norm)
        if self.geometry is None:
            return w[:, 0, :, list(keys)]
        own = self.geometry
        one_hot = w.new_zeros(1, len(keys), self.columns)
        one_hot[0, range(len(keys)), list(keys)] = 1
        groups = w[:, 0].unflatten(0, (-1, own.queries.cells.shape[1]))  # B G N M
        slots = own.keys.gather(one_hot.expand(len(groups), -1, -1))  # B n G M
        return own.queries.scatter(torch.einsum("bgnm,bkgm->bkgn", groups, slots)).mT

    def _times_value_norm(
        self, w: Float[Tensor, "B h n M"], heads: Sequence[int] | None, times_value_norm: bool
    ) -> Tensor:
        if not times_value_norm:
            return w
        lengths = self.value_norms()
        return w * (lengths if heads is None else lengths[:, list(heads)])[:, :, None]

    def column(self, head: int, key: int) -> Float[Tensor, "B N"]:
        """Return the weight of one key for every query."""
        return self.columns_of([key], head)[..., 0]

    def value_norms(self) -> Float[Tensor, "B H M"]:
        """Return the norm of every value after the output projection: what a weight of one would add."""
        if self.norms is None:
            why = "aligners have no output projection" if self.kind == "align" else "they are stored with values=True"
            raise Unsupported(f"'{self.name}' has no value norms: {why}")
        return self.norms

    def trace(self) -> Trace:
        """Return the whole map, as `watch` gives it."""
        return Trace(self.name, self.weights(), self.kind, geometry=self.geometry, exact=self.exact)


@dataclass(frozen=True, eq=False, kw_only=True)
class ComputedMap(LazyMap):
    """The map of a mechanism: q, k and what else its `weights` takes; a row costs H M D multiplications."""

    q: Float[Tensor, "B H N D"]
    k: Float[Tensor, "B G M D"]
    weights_kwargs: Mapping[str, Any]
    module: Mechanism
    compute: Callable[..., Tensor]  # the mechanism's `weights`, bound at capture time; later patches do not change it
    headwise: bool  # whether heads can be computed one by one
    log_normalizers: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)  # B 1 N of some heads

    @property
    def slots(self) -> tuple[int, int]:
        return self.q.shape[2], self.k.shape[2]

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in (self.q, self.k, self.norms) if x is not None)

    @property
    def rowwise(self) -> bool:
        return super().rowwise and self.module.traits.rowwise

    @torch.no_grad()
    def columns_of(self, keys: Sequence[int], head: int, times_value_norm: bool = False) -> Float[Tensor, "B N n"]:
        """Return some columns of one head.

        Those of a softmax need the normalizer of every row, which takes a pass over the whole map and is remembered.
        Any mechanism is linear in v: attending to values that are one at these keys gives their columns, through the
        fused kernels and without a matrix. They differ from `weights` in the last digit.
        """
        weights_kwargs, own = self.weights_kwargs, self.module
        if self.geometry is not None or not self.headwise or own.training or weights_kwargs.get("bias") is not None:
            return super().columns_of(keys, head, times_value_norm)
        _check_range(keys, self.columns, "key")
        _check_range([head], self.heads, "head")
        group = head // (self.heads // self.k.shape[1])
        q, k = self.q[:, head : head + 1], self.k[:, group : group + 1]
        if type(own) is SoftmaxAttention and weights_kwargs.get("layer_state") is None:
            mask, dtype = weights_kwargs.get("mask"), torch.promote_types(q.dtype, torch.float32)
            q, k = q.to(dtype), k.to(dtype)
            if head not in self.log_normalizers:
                self.log_normalizers[head] = own.log_normalizers(q, k, mask)
            w = own.columns(q, k, list(keys), self.log_normalizers[head], mask)[:, 0].to(self.q.dtype)
            return w * self.value_norms()[:, head, None, list(keys)].to(w) if times_value_norm else w
        v = q.new_zeros(len(k), 1, k.shape[2], len(keys))
        v[:, 0, list(keys), range(len(keys))] = self.value_norms()[:, head, list(keys)].to(v) if times_value_norm else 1
        return own.forward(q, k, v, weights_kwargs.get("mask"), layer_state=weights_kwargs.get("layer_state"))[:, 0]

    @torch.no_grad()
    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        """Return the matrix that the mechanism applied, of these heads and query rows (None: all)."""
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
    """A map stored as it was: the rows of an aligner, which depend on one another, or weights that a model formed."""

    recorded: tuple[Float[Tensor, "B H n M"], ...]

    @property
    def slots(self) -> tuple[int, int]:
        return sum(row.shape[2] for row in self._whole), self.recorded[-1].shape[3]

    @property
    def bytes(self) -> int:
        return sum(row.numel() * row.element_size() for row in self.recorded)

    @property
    def _whole(self) -> tuple[Tensor, ...]:
        """A row for each call; of several beams, which have no common map, the latest call."""
        first = self.recorded[0].shape
        uneven = any(row.shape[2] > 1 or row.shape != first for row in self.recorded)
        return self.recorded[-1:] if uneven else self.recorded

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        whole = torch.cat(self._whole, dim=2)
        whole = whole if queries is None else whole[:, :, queries]
        return whole if heads is None else whole[:, list(heads)]


@dataclass(frozen=True, eq=False, kw_only=True)
class DeformableMap(LazyMap):
    """The map of deformable attention, which forms no matrix; a row costs O(H L P)."""

    call: DeformableCall

    @property
    def slots(self) -> tuple[int, int]:
        return self.call.x.shape[1], self.call.memory.shape[1]

    @property
    def bytes(self) -> int:
        return self.call.bytes

    def weights(self, heads: Sequence[int] | None = None, queries: Rows | None = None) -> Float[Tensor, "B H n M"]:
        whole = self.call.weights(slice(None) if queries is None else queries)
        return whole if heads is None else whole[:, list(heads)]


class HeadSlicedBias:
    """The bias of some heads."""

    def __init__(self, bias: Bias, heads: list[int]) -> None:
        self.bias, self.heads = bias, heads

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        every = self.bias.dense(rows)
        return every if every.shape[1] == 1 else every[:, self.heads]

    def score_mod(self) -> None:
        return None


def _check_range(indices: Sequence[int], many: int, what: str) -> None:
    for one in indices:
        if not 0 <= one < many:
            raise BadInput(f"{what} {one} is out of range; there are 0 to {many - 1}")


class MapStore(Mapping[str, LazyMap]):
    """The maps of a model by the name of the module that attended."""

    def __init__(self) -> None:
        self._maps: dict[str, LazyMap] = {}
        self._order: list[LazyMap | Trace] = []  # of the latest pass, with modules that moved tokens in between

    def __getitem__(self, name: str) -> LazyMap:
        if name not in self._maps:
            raise KeyError(f"no map of '{name}' was stored; stored: {', '.join(self._maps) or 'nothing'}")
        return self._maps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def add(self, new: LazyMap, in_pass: bool = False) -> None:
        """Store a map in place of the last one of its name; in one pass a shared layer has one map for each call."""
        if not in_pass:
            self._order = [step for step in self._order if step is not self._maps.get(new.name)]
        self._order.append(new)
        self._maps[new.name] = new

    def names(self) -> list[str]:
        """Return the names of all modules that attended, in the order they ran."""
        return list(self._maps)

    def steps(self) -> list[LazyMap | Trace]:
        """Return the latest pass in order: maps, and traces of modules that only moved tokens (patches, merging)."""
        return list(self._order)

    def last_pass(self) -> list[Trace]:
        """Return the traces of the latest pass in order, those of modules that moved tokens too."""
        return [step.trace() if isinstance(step, LazyMap) else step for step in self._order]

    @property
    def bytes(self) -> int:
        """Size of all that is stored."""
        every = [*self._maps.values(), *(step for step in self._order if isinstance(step, LazyMap))]
        return sum({id(stored): stored.bytes for stored in every}.values())


@contextmanager
def watch_lazy(
    model: nn.Module, only: str = "*", *, values: bool = False, max_bytes: int = MAX_BYTES, required: bool = True
) -> Iterator[MapStore]:
    """Keep what the attention maps of `model` are computed from, for the parts whose path matches `only`.

    With `values`, also the norm of every value after the output projection. More than `max_bytes` raises `BadInput`.
    A model in which nothing attends raises, unless `required` is False: then the store stays empty.
    """
    store = MapStore()
    with observe_attention(model, only, _MapRecorder(store, values, max_bytes), required):
        yield store
    if not store and required:
        raise RegardError(
            f"the model did not run inside the block, so no map was stored{nothing_captured_hint(model, only)}"
        )


class _MapRecorder(AttentionObserver):
    """Stores the latest call of each module."""

    def __init__(self, store: MapStore, values: bool, max_bytes: int) -> None:
        self.store, self.values, self.max_bytes = store, values, max_bytes
        self.unseen_aligners: set[str] = set()  # aligners that have not been called yet in this pass

    def on_pass_start(self) -> None:
        self.store._order = []
        self.unseen_aligners = {name for name, stored in self.store.items() if stored.kind == "align"}

    def before_attention(self, call: AttentionCall) -> None:
        q, k = (x.detach().clone(memory_format=torch.contiguous_format) for x in call.args[:2])
        norms = None
        if self.values:
            with torch.no_grad():
                norms = _value_norms(call, q.shape[1])
        own = call.module
        new = ComputedMap(
            name=call.name,
            kind=call.kind,
            heads=q.shape[1],
            geometry=call.geometry,
            exact=call.exact,
            normalised=own.traits.normalised,
            norms=norms,
            q=q,
            k=k,
            weights_kwargs=call.weights_kwargs,
            module=own,
            compute=own.weights,
            headwise=own.traits.headwise and "weights" not in vars(own),
        )
        self._store(new)

    def on_alignment(self, name: str, module: Any, weights: Tensor, state: Any) -> None:
        before = self.store._maps.get(name)
        earlier = before.recorded if isinstance(before, StoredMap) and name not in self.unseen_aligners else ()
        self.unseen_aligners.discard(name)
        normal = bool(getattr(module, "normalised", True))
        found = (*earlier, weights.detach()[:, None].clone())
        self._store(StoredMap(name=name, kind="align", heads=1, normalised=normal, recorded=found))

    def on_weights(
        self,
        name: str,
        kind: str,
        weights: Tensor,
        to_bhnm: Callable[[Tensor], Tensor],
        geometry: Geometry | None = None,
    ) -> None:
        w = to_bhnm(weights.detach()).clone()
        self._store(StoredMap(name=name, kind=kind, heads=w.shape[1], geometry=geometry, recorded=(w,)))

    def on_deformable(self, call: DeformableCall) -> None:
        module = call.module
        self._store(DeformableMap(name=call.name, kind=module.kind, heads=module.heads, normalised=False, call=call))

    def on_token_move(self, name: str, module: Any, x: Tensor) -> None:
        exact = bool(getattr(module, "exact_geometry", True))
        self.store._order.append(regrouping_trace(name, module.slots(x), x.shape[0], x, exact))

    def _store(self, new: LazyMap) -> None:
        self.store.add(new, self.in_pass and new.kind != "align")
        if new.kind != "align" and self.store.bytes > self.max_bytes:
            raise BadInput(
                f"the maps of this pass need more than {self.max_bytes / 2**20:.0f} MiB; use a shorter input, watch "
                "fewer modules (only=), or raise max_bytes"
            )


def _value_norms(call: AttentionCall, heads: int) -> Float[Tensor, "B H M"] | None:
    """Return the norm of every value of every head after the output projection; None if there is no projection."""
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
