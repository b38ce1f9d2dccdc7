"""Watching attention while the fast kernels run.

    with regard.watch(model, only="decoder.blocks.5.*", heads=[0, 3], queries=[7]) as seen:
        model(source, target)
    seen["decoder.blocks.5.cross"].weights      # B H N M

Every module with `weights(same arguments as forward)` gets a hook that computes the matrix beside the fused forward, in
chunks, for the requested rows only; models of other libraries, which attend through PyTorch's functions, are followed
too (torch_modules). Outside the block nothing is paid; inside it the output is unchanged to the bit, and so is the
random state. Hooks do not fire in compiled code, so a compiled model runs eagerly inside the block, with a warning.

    with regard.watch(model, gradients=True) as seen:
        model(source, target)[0, -1, 7].backward()
    seen["decoder.blocks.5.cross"].gradient     # B H N M, gradient with respect to the weights

A mechanism is linear in v, o = w v; so that gradient is (∂ / ∂o) vᵀ, whatever kernel ran.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import torch
from torch import nn

from regard.attention.capture import AttentionCall, AttentionObserver, DeformableCall, is_recomputing
from regard.attention.capture.torch_modules import TorchFunctionObserver, is_external
from regard.attention.deformable import DeformableAttention
from regard.attention.observed_weights import ObservedWeights
from regard.attention.protocol import Mechanism
from regard.core import html
from regard.core.cancellation import check_cancelled
from regard.core.errors import RegardError, Unsupported
from regard.core.shapes import Float, Rows, Tensor
from regard.core.trace import Geometry, Trace, regrouping_trace

QUERY_CHUNK = 1024  # query rows computed at a time
_WATCHING: ContextVar[frozenset[object]] = ContextVar("watching", default=frozenset())  # blocks open in this context
MAX_HTML_ROWS = 24  # modules that are drawn in a notebook


class Traces(Mapping[str, Trace]):
    """The recorded maps by the name of the module: ``seen["encoder.blocks.0.mix"]`` is its latest map.

    A module that ran several times (while decoding) has one trace for each call, in `calls(name)`.
    """

    def __init__(self, rows: Rows = slice(None)) -> None:
        self._calls: dict[str, list[Trace]] = {}
        self._pass_start: dict[str, int] = {}  # the first call of the model's latest pass
        self._last_pass: list[tuple[list[Trace], int]] = []  # where each trace of that pass is
        self._rows = rows

    def __getitem__(self, name: str) -> Trace:
        if name not in self._calls:
            raise KeyError(f"no map of '{name}' was recorded; recorded: {', '.join(self._calls) or 'none'}")
        calls = self._calls[name]
        if calls[-1].kind != "align":
            return calls[-1]
        return _join_calls(calls[self._pass_start.get(name, 0) :], self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def calls(self, name: str) -> list[Trace]:
        """Return every map of one module, in the order they were made."""
        return list(self._calls.get(name, ()))

    def traces(self, kind: str | None = None) -> list[Trace]:
        """Return the maps of the latest pass in order, optionally of one kind (self, cross, align, gate, ...).

        A layer that ran several times in that pass (ALBERT shares one) has as many maps; a module that did not run in
        it has its latest.
        """
        every = [trace for trace in self.last_pass() if trace.kind != "move"]
        every += [self[name] for name in self if name not in {trace.name for trace in every}]
        return [trace for trace in every if kind is None or trace.kind == kind]

    def last_pass(self) -> list[Trace]:
        """Return all maps of the latest pass in order, with the modules that moved tokens in between (kind "move":
        patches, merging): what rollout over images needs."""
        return [calls[at] for calls, at in self._last_pass]

    def _repr_html_(self) -> str:
        """In a notebook: a row of small maps for every module, the latest of each."""
        parts = []
        for name, trace in list(self.items())[:MAX_HTML_ROWS]:
            w = trace._drawable()
            maps = "".join(html.heatmap(one, f"{name}, head {h}", 40) for h, one in enumerate(w[: html.MAX_HEADS]))
            shape = " ".join(map(str, trace.weights.shape))
            parts.append(f"<tr><td>{html.escape(name)}</td><td>{trace.kind}</td><td>{shape}</td><td>{maps}</td></tr>")
        more = f"<p>and {len(self) - MAX_HTML_ROWS} more modules</p>" if len(self) > MAX_HTML_ROWS else ""
        return (
            f"<table><tr><th>module</th><th>kind</th><th>B H N M</th><th>heads</th></tr>{''.join(parts)}</table>{more}"
        )

    def __repr__(self) -> str:
        return "Traces(" + ", ".join(f"{n}: {tuple(t.weights.shape)}" for n, t in self.items()) + ")"


@contextmanager
def watch(
    model: nn.Module,
    only: str = "*",
    heads: Sequence[int] | None = None,
    queries: slice | Sequence[int] | None = None,
    gradients: bool = False,
) -> Iterator[Traces]:
    """Record the attention maps of all modules of `model` whose path matches `only`.

    Only passes in the thread (or asynchronous task) that opened the block are recorded.
    With `gradients`, also the gradient with respect to the weights, as soon as something made of them is
    differentiated.
    """
    rows: Rows = slice(None) if queries is None else queries if isinstance(queries, slice) else list(queries)
    seen = Traces(rows)
    with observe_attention(model, only, _TraceRecorder(seen, rows, heads, gradients)):
        yield seen
    if not seen:
        raise RegardError(
            "the model did not run inside the block, in its thread, so no map was recorded"
            + nothing_captured_hint(model, only)
        )


@contextmanager
def observe_attention(
    model: nn.Module, only: str, observer: AttentionObserver, required: bool = True
) -> Iterator[None]:
    """Call `observer` for every module of `model` that attends and whose path matches `only`, inside the block."""
    key = object()
    watching = _WATCHING.set(_WATCHING.get() | {key})

    def is_watching() -> bool:
        return key in _WATCHING.get()

    geometries = list[Geometry | None]()
    inner = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    modules = dict(inner.named_modules())

    def mechanism_hooks(name: str, mixer: nn.Module | None) -> tuple[Any, Any]:
        def call(module: Mechanism, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AttentionCall:
            return AttentionCall(name, module, mixer, args, kwargs, geometries[-1] if geometries else None)

        def before(module: Mechanism, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            check_cancelled()
            if is_watching() and not is_recomputing():
                observer.before_attention(call(module, args, kwargs))

        def after(module: Mechanism, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            if is_watching() and not is_recomputing():
                observer.after_attention(call(module, args, kwargs), output)

        before.only_observes = not observer.needs_outputs  # type: ignore[attr-defined]
        return before, after

    def aligner_hook(name: str) -> Any:
        def after(module: Any, args: tuple[Any, ...], output: tuple[Tensor, Any]) -> None:
            if is_watching() and not is_recomputing():
                observer.on_alignment(name, module, *output)

        return after

    def move_hook(name: str) -> Any:
        def before(module: Any, args: tuple[Any, ...]) -> None:
            if is_watching() and not is_recomputing():
                observer.on_token_move(name, module, args[0])

        return before

    def observed_hook(name: str) -> Any:
        def after(module: ObservedWeights, args: tuple[Any, ...], output: Tensor) -> None:
            if not is_watching() or is_recomputing():
                return
            if module.kind == "gate":
                observer.on_gate(name, output)
            else:
                geometry = geometries[-1] if geometries else None
                observer.on_weights(name, module.kind, output, module.to_bhnm, geometry)

        return after

    def deformable_hook(name: str) -> Any:
        def before(module: DeformableAttention, args: tuple[Any, ...]) -> None:
            if is_watching() and not is_recomputing():
                x, memory, references, *where = (each.detach() if isinstance(each, Tensor) else each for each in args)
                memory = memory.new_zeros(()).expand(memory.shape)
                observer.on_deformable(DeformableCall(name, module, x, memory, references, tuple(where)))

        return before

    def begin(module: nn.Module, args: tuple[Any, ...]) -> None:
        if is_watching():
            observer.in_pass = True
            observer.on_pass_start()

    def end(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_watching():
            observer.in_pass = False

    def push(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_watching():
            geometries.append(module.geometry(args[0] if args else kwargs["x"]))

    def pop(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_watching():
            geometries.pop()

    sees_gates = type(observer).on_gate is not AttentionObserver.on_gate
    handles: list[Any] = []
    watched = 0
    if not _is_aligner(inner):
        handles = [inner.register_forward_pre_hook(begin), inner.register_forward_hook(end, always_call=True)]
    with ExitStack() as stack:
        stack.callback(_WATCHING.reset, watching)
        for path, module in modules.items():
            if callable(getattr(module, "geometry", None)):
                handles.append(module.register_forward_pre_hook(push, with_kwargs=True))
                handles.append(module.register_forward_hook(pop, always_call=True))
            if callable(getattr(module, "slots", None)):
                handles.append(module.register_forward_pre_hook(move_hook(path)))
            if isinstance(module, Mechanism):
                name, _, last = path.rpartition(".")  # a mechanism is known by its mixer
                name = name if last == "attend" else path
                if fnmatch(name, only):
                    before, after = mechanism_hooks(name, modules.get(name))
                    handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                    if observer.needs_outputs:
                        handles.append(module.register_forward_hook(after, with_kwargs=True))
                    watched += 1
            elif isinstance(module, DeformableAttention):
                if fnmatch(path, only):
                    handles.append(module.register_forward_pre_hook(deformable_hook(path)))
                    watched += 1
            elif isinstance(module, ObservedWeights) and (sees_gates or module.kind != "gate"):
                name = path.rpartition(".")[0] or path  # it is known by the module that holds it
                if fnmatch(name, only):
                    handles.append(module.register_forward_hook(observed_hook(name)))
                    watched += 1
            elif _is_aligner(module) and fnmatch(path, only):
                handles.append(module.register_forward_hook(aligner_hook(path)))
                watched += 1
        for handle in handles:
            stack.callback(handle.remove)
        if any(is_external(module) for module in modules.values()):
            stack.enter_context(TorchFunctionObserver(modules, only, observer, is_watching))
        elif not watched and required:
            what = "nothing attends" if only == "*" else f"nothing that attends matches '{only}'"
            raise RegardError(f"{what} in this {type(inner).__name__}")
        if inner is not model or any(getattr(m, "_compiled_call_impl", None) is not None for m in modules.values()):
            warnings.warn("watching runs the compiled model eagerly: hooks do not fire in compiled code", stacklevel=5)
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


class _TraceRecorder(AttentionObserver):
    """Records every map."""

    def __init__(self, seen: Traces, rows: Rows, heads: Sequence[int] | None, gradients: bool) -> None:
        self.seen, self.rows, self.gradients = seen, rows, gradients
        self.heads = None if heads is None else list(heads)

    @property
    def needs_outputs(self) -> bool:
        return self.gradients

    def on_pass_start(self) -> None:
        self.seen._pass_start = {name: len(calls) for name, calls in self.seen._calls.items()}
        self.seen._last_pass = []

    def before_attention(self, call: AttentionCall) -> None:
        q, k = call.args[:2]
        with torch.no_grad():
            weights = weights_in_chunks(
                call.module.weights, call.module.traits.rowwise, q, k, call.weights_kwargs, self.rows
            )
            weights = weights if self.heads is None else weights[:, self.heads]
        trace = Trace(
            call.name,
            weights,
            kind=call.kind,
            heads=None if self.heads is None else tuple(self.heads),
            queries=None if self.rows == slice(None) else tuple(_row_indices(self.rows, q.shape[2])),
            geometry=call.geometry,
            exact=call.exact,
        )
        self._add(trace)

    def _add(self, trace: Trace) -> None:
        calls = self.seen._calls.setdefault(trace.name, [])
        calls.append(trace)
        if not self.in_pass:  # a decoding step: the latest counts
            self.seen._last_pass = [(own, at) for own, at in self.seen._last_pass if own is not calls]
        self.seen._last_pass.append((calls, len(calls) - 1))

    def after_attention(self, call: AttentionCall, output: Tensor) -> None:
        if not self.gradients:
            return
        v = call.v.detach()
        each = output.shape[1] // v.shape[1]
        self._record_gradient(
            output, call.name, lambda grad: grad[:, :, self.rows] @ v.repeat_interleave(each, dim=1).mT
        )

    def _record_gradient(self, x: Tensor, name: str, gradient: Callable[[Tensor], Tensor]) -> None:
        """Add the gradient of the weights to the latest map of this name once the gradient of x is known."""
        if not x.requires_grad:
            raise RegardError("gradients=True needs a graph, but this pass has none; run it without torch.no_grad()")
        calls = self.seen._calls[name]
        at = len(calls) - 1

        def keep(grad: Tensor) -> None:
            every = gradient(grad)
            calls[at] = replace(calls[at], gradient=every if self.heads is None else every[:, self.heads])

        x.register_hook(keep)

    def on_weights(
        self,
        name: str,
        kind: str,
        weights: Tensor,
        to_bhnm: Callable[[Tensor], Tensor],
        geometry: Geometry | None = None,
    ) -> None:
        whole = to_bhnm(weights.detach())
        w = whole[:, :, self.rows]
        trace = Trace(
            name,
            w if self.heads is None else w[:, self.heads],
            kind=kind,
            heads=None if self.heads is None else tuple(self.heads),
            queries=None if self.rows == slice(None) else tuple(_row_indices(self.rows, whole.shape[2])),
            geometry=geometry,
        )
        self._add(trace)
        if self.gradients:
            self._record_gradient(weights, name, lambda grad: to_bhnm(grad)[:, :, self.rows])

    def on_deformable(self, call: DeformableCall) -> None:
        if self.gradients:
            raise Unsupported(f"gradients are not recorded for '{call.name}': deformable attention forms no matrix")
        rows = _row_indices(self.rows, call.x.shape[1])
        w = torch.cat([call.weights(rows[i : i + QUERY_CHUNK]) for i in range(0, len(rows), QUERY_CHUNK)], 2)
        trace = Trace(
            call.name,
            w if self.heads is None else w[:, self.heads],
            kind=call.module.kind,
            heads=None if self.heads is None else tuple(self.heads),
            queries=None if self.rows == slice(None) else tuple(rows),
        )
        self._add(trace)

    def on_alignment(self, name: str, module: Any, weights: Tensor, state: Any) -> None:
        centres = module.centres(state).detach()[:, None] if hasattr(module, "centres") else None
        self.seen._calls.setdefault(name, []).append(Trace(name, weights.detach()[:, None], "align", centres=centres))

    def on_gate(self, name: str, weights: Tensor) -> None:
        w = weights.detach().flatten(1)[:, None, None]  # B 1 1 C: one query, the channels as keys
        self.seen._calls.setdefault(name, []).append(Trace(name, w, "gate"))

    def on_token_move(self, name: str, module: Any, x: Tensor) -> None:
        exact = bool(getattr(module, "exact_geometry", True))
        self.seen._last_pass.append(([regrouping_trace(name, module.slots(x), x.shape[0], x, exact)], 0))


def weights_in_chunks(
    weights: Callable[..., Tensor], rowwise: bool, q: Tensor, k: Tensor, weights_kwargs: Mapping[str, Any], rows: Rows
) -> Float[Tensor, "B H rows M"]:
    """Return the weights of the given rows, in chunks if rows are independent."""
    indices = _row_indices(rows, q.shape[2])
    if len(indices) <= QUERY_CHUNK or not rowwise:
        return weights(q, k, **weights_kwargs, queries=rows)
    first = weights(q, k, **weights_kwargs, queries=indices[:QUERY_CHUNK])
    whole = first.new_empty(
        *first.shape[:2], len(indices), first.shape[3]
    )  # joining at the end would need twice the memory
    whole[:, :, :QUERY_CHUNK] = first
    del first
    for i in range(QUERY_CHUNK, len(indices), QUERY_CHUNK):
        whole[:, :, i : i + QUERY_CHUNK] = weights(q, k, **weights_kwargs, queries=indices[i : i + QUERY_CHUNK])
    return whole


def _row_indices(rows: Rows, n: int) -> list[int]:
    """Return query rows as numbers."""
    return list(range(n))[rows] if isinstance(rows, slice) else rows


def nothing_captured_hint(model: nn.Module, only: str) -> str:
    """Return another reason why no map was captured: in models of other libraries only the pass shows what attends."""
    if not any(is_external(module) for module in model.modules()):
        return ""
    what = "nothing in it" if only == "*" else f"nothing in it that matches '{only}'"
    return f"; or {what} attends through PyTorch's functions: scaled_dot_product_attention, or softmax and a product"


def _is_aligner(module: nn.Module) -> bool:
    return callable(getattr(module, "weights", None)) and callable(getattr(module, "keys", None))


def _join_calls(calls: list[Trace], rows: Rows) -> Trace:
    """Join the calls of an aligner in a pass, one for each output token, to the rows of one map.

    Several beams have no common map; then return the latest call.
    """
    if any(trace.weights.shape[2] > 1 or trace.weights.shape[0] != calls[0].weights.shape[0] for trace in calls):
        return calls[-1]
    weights = torch.cat([trace.weights for trace in calls], dim=2)
    indices = _row_indices(rows, weights.shape[2])
    found = [trace.centres for trace in calls if trace.centres is not None]
    return Trace(
        calls[0].name,
        weights[:, :, indices],
        "align",
        queries=None if rows == slice(None) else tuple(indices),
        centres=torch.cat(found, dim=2)[:, :, indices] if found else None,
    )
