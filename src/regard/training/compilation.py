"""The compiled form of a model and of its task's loss, and the way back where the compiler fails.

With FSDP the blocks are compiled one by one, since their weights come and go between them; otherwise the whole model
is, with every method that tasks call on it (`read_entries`). A task whose batches all have one shape says `ragged = False`
and gets kernels made for that shape.
"""

from __future__ import annotations

from typing import Any

import torch

from regard.training.parallel.parallelize import ParallelModel, transformer_blocks
from regard.training.task import Task


class CompiledTask:
    """Compiled parts put in place; `undo` takes them out again."""

    def __init__(self, task: Task, spread: ParallelModel) -> None:
        self.task, self.parallel = task, spread
        dynamic = True if getattr(task, "ragged", True) else None
        if spread.mode == "fsdp":
            for block in transformer_blocks(spread.model):
                block.compile(dynamic=dynamic)
        else:
            spread.objective.use(_CompiledModel(spread.model, dynamic))
        self.objective = getattr(task, "objective", None)  # the heavy end of the loss
        if self.objective is not None:
            setattr(task, "objective", torch.compile(self.objective, dynamic=dynamic))  # noqa: B010

    def undo(self) -> None:
        """Everything as it was."""
        for block in transformer_blocks(self.parallel.model):
            block._compiled_call_impl = None
        self.parallel.objective.use(self.parallel.model)
        if self.objective is not None:
            setattr(self.task, "objective", self.objective)  # noqa: B010


class _CompiledModel:
    """A model of which the calls are compiled and everything else is as it is."""

    def __init__(self, model: torch.nn.Module, dynamic: bool | None) -> None:
        self.model = model
        self.call = torch.compile(model, dynamic=dynamic)
        for name in getattr(model, "forward_methods", ()):
            setattr(self, name, torch.compile(getattr(model, name), dynamic=dynamic))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.call(*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def is_compiler_error(error: Exception) -> bool:
    """Whether torch's compiler raised this, and not the model."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))
