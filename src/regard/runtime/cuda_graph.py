"""A decoding step captured as a CUDA graph and replayed: one launch instead of a few hundred.

A graph reads and writes the memory it was captured with. So each graph is stored with that memory, and a later search
of the same shapes copies its tensors into it: it pays for a copy, not for a capture. Graphs are cached per model, for
its last few shapes. A model whose weights have moved or that has hooks (a replay does not call them), and a search with
an observer, run without graphs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from regard.core.shapes import Tensor

MAX_GRAPHS = 8  # cached graphs per model
SEARCH_TENSORS = ("tokens", "state", "done", "time", "limit", "forced", "banned_tokens", "token_history", "total", "ended", "uniform", "previous_tokens", "text_history", "parents", "live", "pool", "pool_end", "pool_total")  # fmt: skip  # noqa: E501


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """A graph, and the tensors of a search that it reads and writes."""

    graph: Any
    parts: dict[str, Any]


_captured: WeakKeyDictionary[nn.Module, OrderedDict[Any, CapturedStep]] = WeakKeyDictionary()


def replay_step(search: Any, may_capture: bool = True) -> Callable[[], None] | None:
    """Return a function that replays one step of this search, or None where it cannot be captured or is observed.

    A step that never ran on these shapes must not be captured: kernels are chosen and loaded in the first run, and a
    compiled step may be compiled once more when it meets its own results.
    """
    model = search.model
    if search.observer is not None:
        return None
    if not isinstance(model, nn.Module) or not hasattr(model, "freeze") or has_hooks(model):
        return None
    search.state = model.freeze(search.state)  # type: ignore[operator]
    graphs = _captured.setdefault(model, OrderedDict())
    key = search.shape_key = _key(search, model)
    if choose_compiled(model, key):
        graphs.pop(key, None)  # it holds the step as it was
    if key not in graphs and not may_capture:
        return None
    if key not in graphs:
        graphs[key] = _capture(search)
        while len(graphs) > MAX_GRAPHS:
            graphs.popitem(last=False)
    else:
        graphs.move_to_end(key)
        old = list(_tensors(graphs[key].parts))
        for current, captured in zip(_tensors(_search_tensors(search)), old, strict=True):
            if current is not captured:
                captured.copy_(current)
        for name, part in graphs[key].parts.items():
            setattr(search, name, part)
    replay: Callable[[], None] = graphs[key].graph.replay
    return replay


def choose_compiled(model: Any, key: Any) -> bool:
    """Let a step that may be compiled choose how it runs for these shapes; return whether that has changed."""
    choose = getattr(model.step, "choose", None)
    return choose is not None and bool(choose(key))


def add_seconds(search: Any, seconds: float) -> None:
    """Count the time of a search whose step may be compiled later."""
    counter = getattr(search.model.step, "seconds", None)
    if counter is not None and getattr(search, "shape_key", None) is not None:
        counter[search.shape_key] += seconds


def _capture(search: Any) -> CapturedStep:
    """Capture a step without running it."""
    parts = _search_tensors(search)  # a step writes in place: these are its inputs and outputs
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # not torch.cuda.graph, which runs the garbage collector first and takes longer
        graph.capture_begin()
        try:
            search.advance()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return CapturedStep(graph, parts)


def _key(search: Any, model: nn.Module) -> tuple[Any, ...]:
    """Return everything that a graph fixes: shapes, settings, and the addresses of the weights."""
    shapes = tuple((tuple(x.shape), x.dtype) for x in _tensors(_search_tensors(search)))
    weights = tuple(p.data_ptr() for p in model.parameters())
    autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    return type(search).__name__, search.beam_size, search.settings, shapes, weights, autocast, model.training


def _search_tensors(search: Any) -> dict[str, Any]:
    return {name: getattr(search, name) for name in SEARCH_TENSORS if getattr(search, name, None) is not None}


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield every tensor that persists from step to step, in a fixed order (private fields are recomputed)."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if not field.name.startswith("_"):
                yield from _tensors(getattr(value, field.name))
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _tensors(value[name])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "allowed"):  # DenseMask
        yield value.allowed
        if value._additive is not None:
            yield value._additive


def has_hooks(model: nn.Module) -> bool:
    """Return whether parts of the model have forward hooks, which neither a replay nor compiled code would call.

    Those of the model itself are not called by its steps either.
    """
    return any(m._forward_hooks or m._forward_pre_hooks for m in model.modules() if m is not model)
