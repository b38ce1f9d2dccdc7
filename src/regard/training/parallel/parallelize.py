"""One model on many devices, in three ways that can be combined:

    ddp       every process holds the whole model; gradients are averaged during the backward pass
    fsdp      every process holds a shard of every tensor (weights, gradients, moments); a block is gathered just
              before it is needed and freed after it (FSDP2, `fully_shard`)
    tensor    every process holds some of the heads and hidden units of every block, and computes with them
              (DTensor plans: columns on the way in, rows on the way out, one sum after each)

The loss of an update is (sum of the losses) / (sum of the counts) over all processes and accumulated batches, so the
curve does not depend on their number. While batches are accumulated only the last one communicates.

Gradient checkpointing stores only the inputs of each block and runs the block again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import CrossProjection, QKVProjection
from regard.blocks.encoder import Stack
from regard.blocks.feedforward import FeedForward
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.training.parallel.distributed import DistributedContext
from regard.training.task import Task


class ParallelModel:
    """A model and its task, ready to be trained by all processes."""

    def __init__(
        self, task: Task, model: nn.Module, world: DistributedContext, mode: str, precision: str, recompute: bool
    ) -> None:
        self.model, self.world, self.mode = model, world, mode
        if world.tensor_parallel > 1:
            apply_tensor_parallel(model, world)
        if recompute:
            enable_gradient_checkpointing(model)
        if mode == "fsdp":
            apply_fsdp([model, *task.modules().values()], world, precision)
        self.objective = LossModule(task, model)
        self.call: nn.Module = self.objective
        if mode == "ddp" and any(p.requires_grad for p in self.objective.parameters()):
            self.call = DistributedDataParallel(self.objective, process_group=world.mesh.get_group("data"))  # type: ignore[union-attr]

    @property
    def is_sharded(self) -> bool:
        """Return whether a process holds less than the whole model."""
        return self.mode == "fsdp" or self.world.tensor_parallel > 1

    def loss(self, batch: Any, step: int, rng: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the task's loss on this process's part of the batch."""
        found: tuple[Tensor, dict[str, Tensor]] = self.call(batch, step, rng)
        return found

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Only accumulate gradients inside the block; they are synchronised with the last batch of an update."""
        if self.mode == "fsdp":
            for module in self._slices():
                module.set_requires_gradient_sync(last, recurse=False)
            yield
        elif isinstance(self.call, DistributedDataParallel) and not last:
            with self.call.no_sync():
                yield
        else:
            yield

    @contextmanager
    def unsharded(self, enabled: bool = True) -> Iterator[None]:
        """Gather the whole model on every process inside the block, so that any method can be called."""
        slices = self._slices() if enabled else []
        try:
            for module in slices:
                module.set_reshard_after_forward(False, recurse=False)
                module.unshard()
            yield
        finally:
            for module in slices:
                module.reshard()
                module.set_reshard_after_forward(module is not self.model, recurse=False)

    def describe(self) -> str:
        """Return a short description for the run's first line; empty for one process."""
        if self.world.size == 1 and self.mode == "one":
            return ""
        ways = [self.mode] if self.mode != "one" else []
        ways += [f"tensor {self.world.tensor_parallel}"] if self.world.tensor_parallel > 1 else []
        return f"{self.world.size} processes ({', '.join(ways)})"

    def _slices(self) -> list[FSDPModule]:
        return [module for module in self.objective.modules() if isinstance(module, FSDPModule)]


class LossModule(nn.Module):
    """The task's loss as a module, so that all calls of the model go through one `forward`."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.task_modules = nn.ModuleDict(task.modules())
        self.parts = (task, model)  # a tuple, so that a compiled model is not registered as a submodule

    def use(self, model: Any) -> None:
        """Replace the model by a compiled one."""
        self.parts = (self.parts[0], model)

    def forward(self, batch: Any, step: int, rng: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        task, model = self.parts
        return task.loss(model, batch, step, rng)


def select_data_parallel(setting: str, world: DistributedContext, model: nn.Module) -> str:
    """Return how the model is replicated: one, ddp or fsdp.

    Auto chooses fsdp if weights, gradients and two moments in float32 need more than three quarters of a device.
    """
    if world.mesh is None:
        if setting in ("ddp", "fsdp"):
            raise BadInput(
                f"train.data_parallel={setting} needs processes started by torchrun: "
                f"torchrun --nproc-per-node 8 -m regard.training RECIPE ..."
            )
        return "one"
    if world.tensor_parallel > 1:
        if setting == "ddp" and world.num_replicas > 1:
            raise Unsupported(
                "train.tensor_parallel goes with train.data_parallel=fsdp, not ddp, where there are more processes"
            )
        return "fsdp" if world.num_replicas > 1 or setting == "fsdp" else "one"
    if setting in ("ddp", "fsdp"):
        return setting
    if world.size == 1:
        return "one"
    needed = 16 * sum(p.numel() for p in model.parameters())
    memory = torch.cuda.get_device_properties(world.device).total_memory if world.device.type == "cuda" else None
    return "fsdp" if memory is not None and needed > 0.75 * memory else "ddp"


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the repeated blocks of a model: the items of its module lists called `blocks`."""
    lists = [m for name, m in model.named_modules() if name.split(".")[-1] == "blocks" and isinstance(m, nn.ModuleList)]
    return [block for blocks in lists for block in blocks]


def enable_gradient_checkpointing(model: nn.Module) -> None:
    """Let every block store only its input and run again in the backward pass."""
    for block in transformer_blocks(model):
        block.forward = _checkpointed(block.forward)


def _checkpointed(forward: Any) -> Any:
    def checkpointed_forward(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        return checkpoint(forward, *inputs, use_reentrant=False, **named)

    checkpointed_forward.wrap = _checkpointed  # type: ignore[attr-defined]  # for what replaces `forward`
    return checkpointed_forward


def apply_fsdp(modules: list[nn.Module], world: DistributedContext, precision: str) -> None:
    """Shard every tensor over the processes of the data axis.

    In bfloat16 the gathered weights and the computation are bfloat16; the shards and gradient sums stay float32.
    """
    assert world.mesh is not None
    policy = MixedPrecisionPolicy()
    if precision == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = world.mesh["data"]
    for module in modules:
        if not any(p.requires_grad for p in module.parameters()):
            continue  # a teacher: whole on every process
        for block in transformer_blocks(module):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        for name in getattr(module, "forward_methods", ()):  # methods besides forward that tasks call
            register_fsdp_forward_method(module, name)


def apply_tensor_parallel(model: nn.Module, world: DistributedContext) -> None:
    """Distribute heads and hidden units of every block over the processes of the tensor axis."""
    assert world.mesh is not None
    plan: dict[str, Any] = {}
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            _check_heads(name, module, world.tensor_parallel)
            inner = ("qkv",) if module.kind == "self" else ("q", "kv")
            plan |= {f"{name}.project.{part}": ColwiseParallel() for part in inner}
            plan[f"{name}.join.out"] = RowwiseParallel()
        elif isinstance(module, FeedForward):
            if module.up.out_features % world.tensor_parallel:
                raise BadInput(
                    f"train.tensor_parallel={world.tensor_parallel} does not divide the {module.up.out_features} "
                    f"hidden units of {name}"
                )
            plan |= {f"{name}.{part}": ColwiseParallel() for part in ("up", "gate") if hasattr(module, part)}
            plan[f"{name}.down"] = RowwiseParallel()
        elif isinstance(module, Stack) and getattr(module.positions, "kind", "") == "bias":
            raise Unsupported(
                f"train.tensor_parallel splits heads, and the positions of {name} are a bias for all of them"
            )
    if not plan:
        raise Unsupported(
            "train.tensor_parallel needs a Transformer: this model has no heads or feed-forward layers to split"
        )
    parallelize_module(model, world.mesh["tensor"], plan)


def _check_heads(name: str, module: MultiHeadAttention, ranks: int) -> None:
    for part, splits in ((module.attend, (SoftmaxAttention,)), (module.project, (QKVProjection, CrossProjection))):
        if type(part) not in splits:
            raise Unsupported(f"train.tensor_parallel splits heads, which {type(part).__name__} ({name}) may mix")
    if module.project.kv_heads % ranks:
        raise BadInput(
            f"train.tensor_parallel={ranks} does not divide the {module.project.kv_heads} (key) heads of {name}"
        )
    if (
        getattr(module.project, "q_norm", None) is not None
    ):  # each process would have the gradient of its own heads only
        raise Unsupported(f"train.tensor_parallel splits heads, which share the norms of queries and keys ({name})")
