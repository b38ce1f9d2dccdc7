"""Influence of inputs on outputs by gradient, and the module where an unwanted influence begins.

    tokens -> vectors + leaf -> ... -> output        leaf is zero; the gradient of an output with respect to it is the
                                                     influence of every input position on that output

Embedding lookups are found while the model runs: any table indexed with the input's tokens (or some of their columns).
A masked position has a gradient of exactly zero. To locate a leak, the inputs and outputs of every module are tested
in the order in which the modules ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.core.shapes import Tensor
from regard.doctor.report import Skipped
from regard.doctor.target import CheckTarget


@dataclass(eq=False)
class ModuleCall:
    """The floating-point inputs and outputs of one call of a module."""

    name: str
    kind: str
    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass(eq=False)
class GradientTrace:
    """One pass: its output, the leaves of each input, and the module calls if recorded."""

    output: Tensor
    leaves: list[list[Tensor]]  # of each input; empty if no lookup was found
    shapes: list[torch.Size]  # B N of each input
    parts: list[ModuleCall] = field(default_factory=list)

    def influence(self, value: Tensor) -> list[Tensor]:
        """Return, for each input, the gradient norm B N of `value` with respect to its positions."""
        flat = [leaf for leaves in self.leaves for leaf in leaves]
        found = [None for _ in flat]
        if value.requires_grad:
            found = torch.autograd.grad(value, flat, retain_graph=True, allow_unused=True)  # type: ignore[assignment]
        influences, gradients = [value.new_zeros(size) for size in self.shapes], iter(found)
        for i, leaves in enumerate(self.leaves):
            for _ in leaves:
                if (gradient := next(gradients)) is not None:
                    size = len(self.shapes[i])
                    influences[i] = influences[i] + gradient.to(value).reshape(*self.shapes[i], -1).norm(dim=size)
        return influences


def trace_gradients(target: CheckTarget, parts: bool = False, needs: Sequence[int] = ()) -> GradientTrace:
    """Run the model with leaves at its inputs; skip the check if one in `needs` gets none."""
    inputs = list(target.example.inputs)
    if not inputs:
        target.run()  # raises Skipped
    leaves: list[list[Tensor]] = [[] for _ in inputs]
    tokens: list[Tensor | None] = []
    for i, x in enumerate(inputs):
        if x.is_floating_point():
            leaf = torch.zeros_like(x).requires_grad_()
            leaves[i].append(leaf)
            inputs[i] = x + leaf
        tokens.append(None if x.is_floating_point() else x)
    lookups = _EmbeddingLeaves(tokens, leaves)
    with torch.enable_grad(), _record_modules(target.model, parts) as calls, lookups:
        output = target.run(inputs)
    missing = [i for i in needs if not leaves[i]] if any(leaves) else [0]
    if missing:
        name = target.example.names[missing[0]]
        raise Skipped(f"no embedding is indexed by '{name}', so its gradient cannot be followed")
    return GradientTrace(output, leaves, [x.shape[:2] for x in inputs], calls)


def random_projection(out: Tensor, mask: Tensor) -> Tensor:
    """Return a randomly weighted sum of the selected values, so that nothing cancels."""
    selected = out[mask]
    generator = torch.Generator().manual_seed(selected.numel())
    return (selected * torch.randn(selected.shape, generator=generator).to(selected)).sum()


class _EmbeddingLeaves(TorchFunctionMode):
    """Add a leaf wherever a table is indexed with the tokens of an input."""

    def __init__(self, tokens: Sequence[Tensor | None], leaves: list[list[Tensor]]) -> None:
        super().__init__()
        self.tokens, self.leaves = tokens, leaves
        self.leaf_by_lookup: dict[tuple[int, int, tuple[int, ...]], Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        index, table = None, None
        if func is torch.nn.functional.embedding:
            index, table = args[0], args[1] if len(args) > 1 else (kwargs or {}).get("weight")
        elif func is torch.embedding:
            table, index = args[0], args[1]
        elif func is Tensor.__getitem__ and isinstance(args[1], Tensor):
            table, index = args
        if isinstance(index, Tensor) and isinstance(table, Tensor) and table.is_floating_point():
            return self._add_leaf(out, index, table)
        return out

    def _add_leaf(self, out: Tensor, index: Tensor, table: Tensor) -> Tensor:
        if index.is_floating_point() or index.dtype == torch.bool or out.shape[: index.dim()] != index.shape:
            return out
        for i, tokens in enumerate(self.tokens):
            if tokens is None or (columns := _columns(index, tokens)) is None:
                continue
            key = (i, id(table), tuple(out.shape[index.dim() :]))
            if key not in self.leaf_by_lookup:
                self.leaf_by_lookup[key] = out.new_zeros(*tokens.shape, *key[2]).requires_grad_()
                self.leaves[i].append(self.leaf_by_lookup[key])
            leaf = self.leaf_by_lookup[key] if columns == slice(None) else self.leaf_by_lookup[key][:, columns]
            return out + leaf.reshape(out.shape)
        return out


def _columns(index: Tensor, tokens: Tensor) -> slice | None:
    """Return which columns of the tokens an index equals: all (perhaps flattened), a range, or None."""
    if not index.dim():
        return None
    if index.numel() == tokens.numel() and index.shape[0] in (tokens.shape[0], tokens.numel()):
        return slice(None) if torch.equal(index.reshape(tokens.shape), tokens.to(index)) else None
    if index.shape[0] != tokens.shape[0] or not index.dim() <= tokens.dim() == 2 or index.numel() > tokens.numel():
        return None
    wide = index.reshape(index.shape[0], -1)
    width = wide.shape[1]
    for start in range(tokens.shape[1] - width + 1):
        if torch.equal(tokens[:, start : start + width].to(wide), wide):
            return slice(start, start + width)
    return None


# -- modules -----------------------------------------------------------------------------------------------------------


@contextmanager
def record_modules(model: nn.Module) -> Iterator[list[ModuleCall]]:
    """Record every module call inside the block, in the order in which they end."""
    with _record_modules(model, True) as calls:
        yield calls


@contextmanager
def _record_modules(model: nn.Module, enabled: bool) -> Iterator[list[ModuleCall]]:
    calls: list[ModuleCall] = []
    handles = []

    def hook(name: str) -> Callable[..., None]:
        def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            calls.append(ModuleCall(name, type(module).__name__, _floats((args, kwargs)), _floats(out)))

        return record

    for name, module in model.named_modules() if enabled else ():
        if name:
            handles.append(module.register_forward_hook(hook(name), with_kwargs=True))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _floats(value: Any) -> list[Tensor]:
    """Return the floating-point tensors in a nested structure."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [x for part in parts for x in _floats(part)]


def first_bad_module(calls: Sequence[ModuleCall], is_bad: Callable[[Tensor], bool], model: nn.Module) -> str:
    """Return the first module with a bad output, or the code before a module whose input is already bad."""
    for call in calls:
        if any(is_bad(x) for x in call.inputs):
            return _code_before(call, calls, is_bad, model)
        if any(is_bad(x) for x in call.outputs):
            return f"{call.name} ({call.kind})"
    return ""


def _code_before(
    call: ModuleCall, calls: Sequence[ModuleCall], is_bad: Callable[[Tensor], bool], model: nn.Module
) -> str:
    """Name the innermost enclosing module whose inputs are good: its code made the bad value."""
    ran = {other.name: other for other in calls}
    name, parent = call.name, call.name.rpartition(".")[0]
    while parent:
        if parent in ran and not any(is_bad(x) for x in ran[parent].inputs):
            break
        name, parent = parent if parent in ran else name, parent.rpartition(".")[0]
    module = model.get_submodule(parent) if parent else model
    called = f"{parent} ({type(module).__name__})" if parent else f"{type(module).__name__} itself"
    return f"the code of {called}, before {name.removeprefix(parent).lstrip('.')}"


def find_dimension(x: Tensor, size: int) -> int | None:
    """Return the only dimension after the first that has this size; None if there is none or several."""
    found = [d for d in range(1, x.dim()) if x.shape[d] == size]
    return found[0] if len(found) == 1 else (1 if 1 in found and x.dim() == 3 else None)
