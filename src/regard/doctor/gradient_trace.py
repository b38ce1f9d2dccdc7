"""Following influence by its gradient: does this output depend on that input, and where does it begin to?

    tokens -> vectors + leaf -> ... -> output        leaf is zero, and the gradient of an output with respect to it is
                                                     the influence of every place of the input on that output

Where tokens become vectors is found while the model runs: a table is looked up with the numbers of the input (or with
some columns of them), whoever looks it up. What a mask rules out has a gradient of exactly zero. To find where a leak
begins, the same question is asked of what goes into and comes out of every part, in the order in which the parts ran.
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
    """What went into and came out of one part of a model."""

    name: str
    kind: str
    inputs: list[Tensor]
    outputs: list[Tensor]


@dataclass(eq=False)
class GradientTrace:
    """One pass: its output, the leaves at each input, and the parts that ran (where they were asked for)."""

    output: Tensor
    leaves: list[list[Tensor]]  # of each input; none where nobody knows how it becomes vectors
    places: list[torch.Size]  # B N of each input
    parts: list[ModuleCall] = field(default_factory=list)

    def influence(self, of: Tensor) -> list[Tensor]:
        """B N for each input: how strongly each of its places bears on a number."""
        flat = [leaf for leaves in self.leaves for leaf in leaves]
        found = [None for _ in flat]
        if of.requires_grad:
            found = torch.autograd.grad(of, flat, retain_graph=True, allow_unused=True)  # type: ignore[assignment]
        felt, gradients = [of.new_zeros(size) for size in self.places], iter(found)
        for i, leaves in enumerate(self.leaves):
            for _ in leaves:
                if (gradient := next(gradients)) is not None:
                    size = len(self.places[i])
                    felt[i] = felt[i] + gradient.to(of).reshape(*self.places[i], -1).norm(dim=size)
        return felt


def trace_gradients(target: CheckTarget, parts: bool = False, needs: Sequence[int] = ()) -> GradientTrace:
    """Run the model with leaves at its inputs; `needs` are those without which there is nothing to follow."""
    inputs = list(target.reads.inputs)
    if not inputs:
        target.run()  # says why not
    leaves: list[list[Tensor]] = [[] for _ in inputs]
    tokens: list[Tensor | None] = []
    for i, x in enumerate(inputs):
        if x.is_floating_point():
            leaf = torch.zeros_like(x).requires_grad_()
            leaves[i].append(leaf)
            inputs[i] = x + leaf
        tokens.append(None if x.is_floating_point() else x)
    lookups = _EmbeddingLeaves(tokens, leaves)
    with torch.enable_grad(), _record_modules(target.model, parts) as seen, lookups:
        output = target.run(inputs)
    missing = [i for i in needs if not leaves[i]] if any(leaves) else [0]
    if missing:
        name = target.reads.names[missing[0]]
        raise Skipped(f"no table was looked up with the numbers of '{name}', so their influence cannot be followed")
    return GradientTrace(output, leaves, [x.shape[:2] for x in inputs], seen)


def random_projection(out: Tensor, chosen: Tensor) -> Tensor:
    """Some of a tensor as one number: random weights, so that nothing cancels."""
    picked = out[chosen]
    dice = torch.Generator().manual_seed(picked.numel())
    return (picked * torch.randn(picked.shape, generator=dice).to(picked)).sum()


class _EmbeddingLeaves(TorchFunctionMode):
    """Adds a leaf wherever a table is looked up with the tokens of an input."""

    def __init__(self, tokens: Sequence[Tensor | None], leaves: list[list[Tensor]]) -> None:
        super().__init__()
        self.tokens, self.leaves = tokens, leaves
        self.known: dict[tuple[int, int, tuple[int, ...]], Tensor] = {}

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
            return self._touched(out, index, table)
        return out

    def _touched(self, out: Tensor, index: Tensor, table: Tensor) -> Tensor:
        if index.is_floating_point() or index.dtype == torch.bool or out.shape[: index.dim()] != index.shape:
            return out
        for i, tokens in enumerate(self.tokens):
            if tokens is None or (at := _columns(index, tokens)) is None:
                continue
            key = (i, id(table), tuple(out.shape[index.dim() :]))
            if key not in self.known:
                self.known[key] = out.new_zeros(*tokens.shape, *key[2]).requires_grad_()
                self.leaves[i].append(self.known[key])
            leaf = self.known[key] if at == slice(None) else self.known[key][:, at]
            return out + leaf.reshape(out.shape)
        return out


def _columns(index: Tensor, tokens: Tensor) -> slice | None:
    """Which columns of the tokens an index is: all of them (perhaps in one row), some that lie together, or one."""
    if not index.dim():
        return None
    if index.numel() == tokens.numel() and index.shape[0] in (tokens.shape[0], tokens.numel()):
        return slice(None) if torch.equal(index.reshape(tokens.shape), tokens.to(index)) else None
    if index.shape[0] != tokens.shape[0] or not index.dim() <= tokens.dim() == 2 or index.numel() > tokens.numel():
        return None
    wide = index.reshape(index.shape[0], -1)
    width = wide.shape[1]
    for at in range(tokens.shape[1] - width + 1):
        if torch.equal(tokens[:, at : at + width].to(wide), wide):
            return slice(at, at + width)
    return None


# -- parts -------------------------------------------------------------------------------------------------------------


@contextmanager
def record_modules(model: nn.Module) -> Iterator[list[ModuleCall]]:
    """What went into and came out of every part that runs inside the block, in the order in which they ended."""
    with _record_modules(model, True) as seen:
        yield seen


@contextmanager
def _record_modules(model: nn.Module, wanted: bool) -> Iterator[list[ModuleCall]]:
    seen: list[ModuleCall] = []
    handles = []

    def hook(name: str) -> Callable[..., None]:
        def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            seen.append(ModuleCall(name, type(module).__name__, _floats((args, kwargs)), _floats(out)))

        return look

    for name, module in model.named_modules() if wanted else ():
        if name:
            handles.append(module.register_forward_hook(hook(name), with_kwargs=True))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _floats(value: Any) -> list[Tensor]:
    """Every floating tensor in something nested."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [x for part in parts for x in _floats(part)]


def first_bad_module(parts: Sequence[ModuleCall], bad: Callable[[Tensor], bool], model: nn.Module) -> str:
    """The first part out of which something bad comes; where it goes in already, the code before it is meant."""
    for part in parts:
        if any(bad(x) for x in part.inputs):
            return _code_before(part, parts, bad, model)
        if any(bad(x) for x in part.outputs):
            return f"{part.name} ({part.kind})"
    return ""


def _code_before(part: ModuleCall, parts: Sequence[ModuleCall], bad: Callable[[Tensor], bool], model: nn.Module) -> str:
    """Whose code is meant: that of the innermost part around it that ran and into which nothing bad went."""
    ran = {one.name: one for one in parts}
    name, around = part.name, part.name.rpartition(".")[0]
    while around:
        if around in ran and not any(bad(x) for x in ran[around].inputs):
            break
        name, around = around if around in ran else name, around.rpartition(".")[0]
    module = model.get_submodule(around) if around else model
    called = f"{around} ({type(module).__name__})" if around else f"{type(module).__name__} itself"
    return f"the code of {called}, before {name.removeprefix(around).lstrip('.')}"


def find_dimension(x: Tensor, size: int) -> int | None:
    """The one dimension of a tensor (behind the first) that has a size; None where there is none, or several."""
    found = [d for d in range(1, x.dim()) if x.shape[d] == size]
    return found[0] if len(found) == 1 else (1 if 1 in found and x.dim() == 3 else None)
