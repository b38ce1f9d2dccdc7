"""Who trains: one process, or many that torchrun started, each with a rank and a device of its own.

    regard train RECIPE ...                                        one process: a world of one, nothing is set up
    torchrun --nproc-per-node 8 -m regard.training RECIPE ...      eight processes on one machine, or on several

The ranks stand in a grid, data x tensor. Ranks of one row hold parts of the same matrices and see the same batch;
rows see different parts of a batch. A world of one has the same verbs, and they do nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from regard.core.errors import BadInput
from regard.core.shapes import Tensor


@dataclass(frozen=True)
class DistributedContext:
    """One process's view of all of them."""

    device: torch.device
    rank: int = 0
    size: int = 1
    tensor_parallel: int = 1  # ranks that share the matrices of one copy of the model
    mesh: DeviceMesh | None = None  # ("data", "tensor"); None in a world of one

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that speaks and writes."""
        return self.rank == 0

    @property
    def replica(self) -> int:
        """Which part of each batch is this process's."""
        return self.rank // self.tensor_parallel

    @property
    def num_replicas(self) -> int:
        """Into how many parts each batch is cut."""
        return self.size // self.tensor_parallel

    def barrier(self) -> None:
        """Go on when all have come here."""
        if self.size > 1:
            dist.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)

    def any_rank(self, flag: bool) -> bool:
        """Whether any process says yes; all hear the same answer."""
        return bool(self.max_over_ranks(int(flag)))

    def max_over_ranks(self, number: int) -> int:
        """The largest number that any process says. Hosts talk here, devices are not waited for."""
        if self.size == 1:
            return number
        said = torch.tensor(number)
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return int(said)

    def sum_over_replicas(self, count: int) -> int:
        """The sum over the parts of a batch of a number that the hosts know."""
        if self.size == 1:
            return count
        said = torch.tensor(count)
        dist.all_reduce(said)
        return int(said) // self.tensor_parallel

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """The sum over the parts of a batch, in place; nothing waits for the device."""
        if self.mesh is not None and self.num_replicas > 1:
            dist.all_reduce(x, group=self.mesh.get_group("data"))
        return x

    def broadcast(self, value: Any) -> Any:
        """What the leader says, heard by all (plain values)."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]


def is_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def init_process_group(backend: str) -> None:
    """Find the other processes. Each restart by torchrun writes under a name of its own: what the processes before it
    left in the store are addresses of the dead, and gloo would wait for them."""
    patience = timedelta(minutes=10)
    store, rank, size = next(iter(rendezvous("env://", timeout=patience)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"regard/{attempt}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)


@contextmanager
def distributed_context(device: torch.device, tensor: int = 1) -> Iterator[DistributedContext]:
    """The world this process belongs to, for as long as the block lasts."""
    if not is_torchrun():
        if tensor > 1:
            raise BadInput(
                f"train.tensor_parallel={tensor} needs as many processes: torchrun --nproc-per-node {tensor} -m ..."
            )
        yield DistributedContext(device)
        return
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if size % tensor:
        raise BadInput(f"train.tensor_parallel={tensor} does not divide the {size} processes")
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise BadInput(f"process {local} has no GPU of its own: this machine has {torch.cuda.device_count()}")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    ours = not dist.is_initialized()  # else it is the caller's, who may train several times
    if ours:
        init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        mesh = init_device_mesh(device.type, (size // tensor, tensor), mesh_dim_names=("data", "tensor"))
        yield DistributedContext(device, rank, size, tensor, mesh)
    finally:
        if ours:
            dist.destroy_process_group()
