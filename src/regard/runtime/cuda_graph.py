"""A decoding step recorded as a CUDA graph and replayed: one launch instead of a few hundred.

A graph reads and writes the very memory it was recorded with. So a recording is kept together with that memory, and a
later search of the same shapes copies its own tensors in and goes on there: it pays for a copy, not for a recording.
Recordings are kept on the model, the last few shapes of it. A model whose weights have moved, or that is being watched
(hooks do not fire in a replay), is not replayed, nor is a search that somebody looks on.
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

MAX_GRAPHS = 8  # recordings a model
SEARCH_TENSORS = ("tokens", "state", "done", "time", "limit", "forced", "banned_tokens", "words", "total", "ended", "uniform", "previous_tokens", "parents", "live", "pool", "pool_end", "pool_total")  # fmt: skip  # noqa: E501


@dataclass(frozen=True, eq=False)
class CapturedStep:
    """A graph, and the parts of a search that it reads and writes."""

    graph: Any
    parts: dict[str, Any]


_captured: WeakKeyDictionary[nn.Module, OrderedDict[Any, CapturedStep]] = WeakKeyDictionary()


def replay_step(search: Any, may_record: bool = True) -> Callable[[], None] | None:
    """One step of this search as a replay; None where the model cannot be recorded, or somebody looks on.

    A step that was never run on these shapes must not be recorded (kernels are chosen and loaded when first run; a step
    that is compiled may be compiled once more when it meets its own results).
    """
    model = search.model
    if search.observer is not None:
        return None
    if not isinstance(model, nn.Module) or not hasattr(model, "freeze") or has_hooks(model):
        return None
    search.state = model.freeze(search.state)  # type: ignore[operator]
    kept = _captured.setdefault(model, OrderedDict())
    key = _key(search, model)
    if key not in kept and not may_record:
        return None
    if key not in kept:
        kept[key] = _capture(search)
        while len(kept) > MAX_GRAPHS:
            kept.popitem(last=False)
    else:
        kept.move_to_end(key)
        old = list(_tensors(kept[key].parts))
        for mine, recorded in zip(_tensors(_search_tensors(search)), old, strict=True):
            if mine is not recorded:
                recorded.copy_(mine)
        for name, part in kept[key].parts.items():
            setattr(search, name, part)
    replay: Callable[[], None] = kept[key].graph.replay
    return replay


def _capture(search: Any) -> CapturedStep:
    """Record a step; recording does not run it."""
    parts = _search_tensors(search)  # a step writes in place, so these are what it reads and what it leaves
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # by hand: torch.cuda.graph would collect garbage first, which takes longer
        graph.capture_begin()
        try:
            search.advance()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return CapturedStep(graph, parts)


def _key(search: Any, model: nn.Module) -> tuple[Any, ...]:
    """Everything that is fixed in a recording: shapes, settings, and where the weights lie."""
    shapes = tuple((tuple(x.shape), x.dtype) for x in _tensors(_search_tensors(search)))
    weights = tuple(p.data_ptr() for p in model.parameters())
    autocast = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    return type(search).__name__, search.beam_size, search.how, shapes, weights, autocast, model.training


def _search_tensors(search: Any) -> dict[str, Any]:
    return {name: getattr(search, name) for name in SEARCH_TENSORS if getattr(search, name, None) is not None}


def _tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor that lives on from step to step, always in the same order (private fields are made anew)."""
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
    elif hasattr(value, "allowed"):  # a mask that is a table
        yield value.allowed
        if value._added is not None:
            yield value._added


def has_hooks(model: nn.Module) -> bool:
    """Whether somebody looks on, through hooks, which neither a replay nor compiled code would call."""
    return any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
