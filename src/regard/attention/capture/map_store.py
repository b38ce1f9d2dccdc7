"""Keeping what attention was made of, instead of the attention: any row of any map can be had later, exactly.

    with kept(model) as store:
        model(source, target)
    store["decoder.blocks.2.cross"].weights(queries=[7])        B H 1 M, to the bit what `watch` gives for that row

    all maps of a pass       L H N M numbers          N = M = 4,096, 24 layers of 16 heads, float32: 26 GB
    what is kept here        L (H N + G M) D          the same, D = 64: 0.8 GB; a row costs H M D multiplications

A mechanism's `map_rows` needs q and k, the mask, the bias and the layer state of its call: these are held, q and k as copies (a
cache is written on, and a view would hold v too). With `import_fields` the length of every value behind the output projection
is held as well, so that maps can say what was moved and not only what was looked at (Kobayashi et al.). An aligner's
rows depend on one another, so those are held themselves. Of a model that runs many times (writing, say) the latest pass
is held. More than `most` bytes are refused.

Kobayashi, Kuribayashi, Yokoi, Inui: Attention is Not Only a Weight: Analyzing Transformers with Vector Norms. EMNLP
2020. arXiv:2004.10102
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from regard.attention.capture.lazy_maps import ComputedMap, LazyMap, StoredMap
from regard.attention.capture.observer import AttentionCall, AttentionObserver
from regard.attention.capture.watch import nothing_captured_hint, observe_attention
from regard.core.errors import BadInput, RegardError
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace, regrouping_trace

MAX_BYTES = 4 * 2**30  # bytes that a store holds unless told otherwise


class MapStore(Mapping[str, LazyMap]):
    """What was kept, by the name of the part that looked."""

    def __init__(self) -> None:
        self._maps: dict[str, LazyMap] = {}
        self._order: list[LazyMap | Trace] = []  # of the latest pass, with what moved tokens in between

    def __getitem__(self, name: str) -> LazyMap:
        if name not in self._maps:
            raise KeyError(f"nothing was kept of '{name}'; kept: {', '.join(self._maps) or 'nothing'}")
        return self._maps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def add(self, held: LazyMap) -> None:
        """Hold one more; where there is one of its name, in its place."""
        self._order = [step for step in self._order if step is not self._maps.get(held.name)]
        self._order.append(held)
        self._maps[held.name] = held

    def names(self) -> list[str]:
        """All that attended, in the order it ran."""
        return list(self._maps)

    def steps(self) -> list[LazyMap | Trace]:
        """The latest pass in the order it ran: what attended, and as traces what only moved tokens (patches cut,
        neighbours merged)."""
        return list(self._order)

    def last_pass(self) -> list[Trace]:
        """All maps of the latest pass in full, with what moved tokens between them, in the order they ran."""
        return [step.trace() if isinstance(step, LazyMap) else step for step in self._order]

    @property
    def bytes(self) -> int:
        """What is held in all."""
        return sum(held.bytes for held in self._maps.values())


@contextmanager
def watch_lazy(
    model: nn.Module, only: str = "*", *, values: bool = False, max_bytes: int = MAX_BYTES, required: bool = True
) -> Iterator[MapStore]:
    """Keep what the attention maps of `model` are computed from, for the parts whose path matches `only`.

    With `values`, also the lengths of the values behind the output projection. More than `max_bytes` bytes are refused.
    A model in which nothing attends raises, unless `required` is False: then the store stays empty.
    """
    store = MapStore()
    with observe_attention(model, only, _MapRecorder(store, values, max_bytes), required):
        yield store
    if not store and required:
        raise RegardError(
            f"the model did not run inside the block, so nothing was kept{nothing_captured_hint(model, only)}"
        )


class _MapRecorder(AttentionObserver):
    """One that holds what it is told of, the latest call of each part."""

    def __init__(self, store: MapStore, values: bool, max_bytes: int) -> None:
        self.store, self.values, self.max_bytes = store, values, max_bytes
        self.unseen_aligners: set[str] = set()  # aligners that have not looked yet in this pass

    def on_pass_start(self) -> None:
        self.store._order = []
        self.unseen_aligners = {name for name, held in self.store.items() if held.kind == "align"}

    def before_attention(self, call: AttentionCall) -> None:
        q, k = (x.detach().clone(memory_format=torch.contiguous_format) for x in call.args[:2])
        norms = None
        if self.values:
            with torch.no_grad():
                norms = _value_norms(call, q.shape[1])
        own = call.module
        held = ComputedMap(
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
        self._store(held)

    def on_alignment(self, name: str, module: Any, weights: Tensor, state: Any) -> None:
        before = self.store._maps.get(name)
        earlier = before.recorded if isinstance(before, StoredMap) and name not in self.unseen_aligners else ()
        self.unseen_aligners.discard(name)
        normal = bool(getattr(module, "normalised", True))
        found = (*earlier, weights.detach()[:, None].clone())
        self._store(StoredMap(name=name, kind="align", heads=1, normalised=normal, recorded=found))

    def on_weights(self, name: str, kind: str, weights: Tensor) -> None:
        self._store(StoredMap(name=name, kind=kind, heads=weights.shape[1], recorded=(weights.detach().clone(),)))

    def on_token_move(self, name: str, module: Any, x: Tensor) -> None:
        exact = bool(getattr(module, "exact_geometry", True))
        self.store._order.append(regrouping_trace(name, module.slots(x), x.shape[0], x, exact))

    def _store(self, held: LazyMap) -> None:
        self.store.add(held)
        if held.kind != "align" and self.store.bytes > self.max_bytes:
            raise BadInput(
                f"what this model's attention is made of takes more than {self.max_bytes / 2**20:.0f} MiB here; "
                "give a shorter input, or keep fewer parts (only=)"
            )


def _value_norms(call: AttentionCall, heads: int) -> Float[Tensor, "B H M"] | None:
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
