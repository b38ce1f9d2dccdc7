"""Compile the model and its task's loss, and undo it where the compiler fails.

    blocks    every kind of block is compiled once: blocks of one class and one shape share the graph, and their weights
              are inputs of it, so a model of twelve layers costs the compiler as much as one of two
    whole     the model as one graph, with every method in its `forward_methods`: slower to compile, by the number of
              layers, and what lies between the blocks is fused too

Blocks are chosen where most of the weights are in repeated blocks, and always with FSDP, which gathers and frees the
weights between them. A task whose batches all have one shape sets `ragged = False` and gets kernels specialised to that
shape. A graph is made for each mode: training, and evaluation, which runs compiled blocks too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from regard.blocks.residual import DropPath
from regard.training.parallel.parallelize import ParallelModel, transformer_blocks
from regard.training.task import Task


class CompiledTask:
    """Compiled parts in place of eager ones; `undo` restores the eager ones. `blocks`: None chooses by the model."""

    def __init__(self, task: Task, parallel: ParallelModel, blocks: bool | None = None) -> None:
        self.task, self.parallel = task, parallel
        dynamic = True if getattr(task, "ragged", True) else None
        self.forwards: dict[nn.Module, Any] = {}  # of compiled blocks, their own before
        if blocks is None:
            blocks = is_mostly_blocks(parallel.model)
        if blocks or parallel.mode == "fsdp":
            self.forwards = compile_blocks(parallel.model, dynamic)
        if not self.forwards:
            parallel.objective.use(_CompiledModel(parallel.model, dynamic))
        self.objective = getattr(task, "objective", None)  # the expensive last part of the loss
        if self.objective is not None:
            setattr(task, "objective", torch.compile(self.objective, dynamic=dynamic))  # noqa: B010

    def undo(self) -> None:
        for block, forward in self.forwards.items():
            block.forward = forward
            block._compiled_call_impl = None
        self.parallel.objective.use(self.parallel.model)
        if self.objective is not None:
            setattr(self.task, "objective", self.objective)  # noqa: B010


def compile_blocks(model: nn.Module, dynamic: bool | None = None) -> dict[nn.Module, Any]:
    """Compile the blocks of a model in place, each kind once; return their forwards of before."""
    _share_drop_path(model)
    found: dict[nn.Module, Any] = {}
    kinds: dict[Any, Callable[..., Any]] = {}
    for block in transformer_blocks(model):
        kind = _kind(block)
        if kind not in kinds:
            kinds[kind] = torch.compile(_copy_function(type(block).forward, len(kinds)), dynamic=dynamic)
        found[block] = block.forward
        compiled = MethodType(kinds[kind], block)
        wrap = getattr(block.forward, "wrap", None)  # gradient checkpointing, which stays outside of the graph
        block.forward = compiled if wrap is None else wrap(compiled)
        block._compiled_call_impl = block._call_impl  # says that it is compiled (attention.capture.watch)
    return found


def _share_drop_path(model: nn.Module) -> None:
    """Let drop path read its rate from a tensor: blocks differ in it, and a number would be part of the graph."""
    parts = [part for part in model.modules() if isinstance(part, DropPath)]
    if any(part.p for part in parts):
        device = next(model.parameters()).device
        for part in parts:
            part.keep = torch.tensor(1 - part.p, device=device)


def is_mostly_blocks(model: nn.Module) -> bool:
    """Return whether blocks that have their like hold at least half of the weights, embeddings left aside."""
    blocks = transformer_blocks(model)
    many = Counter(map(_kind, blocks))
    repeated = {p for block in blocks if many[_kind(block)] > 1 for p in block.parameters()}
    embeddings = {p for part in model.modules() if isinstance(part, nn.Embedding) for p in part.parameters()}
    count = [sum(p.numel() for p in some) for some in (repeated, {*model.parameters()} - embeddings)]
    return bool(blocks) and 2 * count[0] >= count[1]


def _kind(block: nn.Module) -> Any:
    return type(block), tuple((name, p.shape) for name, p in block.named_parameters())


def _copy_function(function: Any, number: int) -> Any:
    """Return a function with code of its own.

    The compiler counts graphs, and remembers which sizes change, by code and its name: blocks of another kind would
    make it believe that widths change, and after eight graphs of one code it stops compiling without a word.
    """
    code = function.__code__.replace(co_name=f"{function.__name__}_{number}")
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class _CompiledModel:
    """A model whose calls are compiled; all other attributes are the model's."""

    def __init__(self, model: torch.nn.Module, dynamic: bool | None) -> None:
        self.model = model
        self.call = torch.compile(model, dynamic=dynamic)
        for name in getattr(model, "forward_methods", ()):
            setattr(self, name, torch.compile(getattr(model, name), dynamic=dynamic))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.call(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)
