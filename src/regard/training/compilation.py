"""Compile the model and its task's loss, and undo it where the compiler fails.

With FSDP the blocks are compiled one by one, since their weights are gathered and freed between them; otherwise the
whole model is, with every method in its `forward_methods`. A task whose batches all have one shape sets `ragged =
False` and gets kernels specialised to that shape.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.training.parallel.parallelize import ParallelModel, transformer_blocks
from regard.training.task import Task


class CompiledTask:
    """Compiled parts in place of eager ones; `undo` restores the eager ones."""

    def __init__(self, task: Task, parallel: ParallelModel) -> None:
        self.task, self.parallel = task, parallel
        dynamic = True if getattr(task, "ragged", True) else None
        if parallel.mode == "fsdp":
            for block in transformer_blocks(parallel.model):
                block.compile(dynamic=dynamic)
        else:
            parallel.objective.use(_CompiledModel(parallel.model, dynamic))
        self.objective = getattr(task, "objective", None)  # the expensive last part of the loss
        if self.objective is not None:
            setattr(task, "objective", torch.compile(self.objective, dynamic=dynamic))  # noqa: B010

    def undo(self) -> None:
        for block in transformer_blocks(self.parallel.model):
            block._compiled_call_impl = None
        self.parallel.objective.use(self.parallel.model)
        if self.objective is not None:
            setattr(self.task, "objective", self.objective)  # noqa: B010


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
