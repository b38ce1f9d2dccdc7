"""The processes of a run: one, or many started by torchrun, each with its rank and device.

    regard train RECIPE ...                                        one process: nothing is set up
    torchrun --nproc-per-node 8 -m regard.training RECIPE ...      eight processes on one machine, or on several

Ranks form a grid, data x tensor. Ranks of one row hold parts of the same matrices and see the same batch; rows see
different parts of a batch. With one process the collective operations do nothing.
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
    """One process's view of all processes."""

    device: torch.device
    rank: int = 0
    size: int = 1
    tensor_parallel: int = 1  # ranks that share the matrices of one copy of the model
    mesh: DeviceMesh | None = None  # ("data", "tensor"); None in a world of one

    @property
    def is_main_process(self) -> bool:
        """Return whether this process prints and writes."""
        return self.rank == 0

    @property
    def replica(self) -> int:
        """Return which part of each batch belongs to this process."""
        return self.rank // self.tensor_parallel

    @property
    def num_replicas(self) -> int:
        """Return the number of parts of each batch."""
        return self.size // self.tensor_parallel

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)

    def max_over_ranks(self, number: int) -> int:
        """Return the largest number over all processes. Runs on the host, without waiting for the device."""
        if self.size == 1:
            return number
        total = torch.tensor(number)
        dist.all_reduce(total, dist.ReduceOp.MAX)
        return int(total)

    def sum_over_replicas(self, count: int) -> int:
        """Return the sum of a host number over the replicas."""
        if self.size == 1:
            return count
        total = torch.tensor(count)
        dist.all_reduce(total)
        return int(total) // self.tensor_parallel

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """Sum over the replicas, in place, without waiting for the device."""
        if self.mesh is not None and self.num_replicas > 1:
            dist.all_reduce(x, group=self.mesh.get_group("data"))
        return x

    def broadcast(self, value: Any) -> Any:
        """Return the main process's value (plain values)."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]


def is_torchrun() -> bool:
    """Return whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def init_process_group(backend: str) -> None:
    """Join the other processes.

    Each restart by torchrun uses its own prefix in the store: the addresses of the processes before it are dead, and
    gloo would wait for them.
    """
    timeout = timedelta(minutes=10)
    store, rank, size = next(iter(rendezvous("env://", timeout=timeout)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"regard/{attempt}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)


@contextmanager
def distributed_context(device: torch.device, tensor: int = 1) -> Iterator[DistributedContext]:
    """Set up the process group for the duration of the block."""
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
            raise BadInput(f"process {local} has no GPU: this machine has {torch.cuda.device_count()}")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    owned = not dist.is_initialized()  # else it belongs to the caller, who may train several times
    if owned:
        init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        mesh = init_device_mesh(device.type, (size // tensor, tensor), mesh_dim_names=("data", "tensor"))
        yield DistributedContext(device, rank, size, tensor, mesh)
    finally:
        if owned:
            dist.destroy_process_group()
