"""A parameter as an update rule sees it, and arithmetic that skips an update without a host synchronisation.

A parameter may be a DTensor. Elementwise operations work on the local shard; sums over a whole parameter go through
`sum_shards`, with one all-reduce for all parameters together.

`found_inf` is a number on the device: 1 if the gradient is not finite. Then the gradient is replaced by zeros, means
are multiplied with 1, and steps with 0: nothing changes, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from regard.core.shapes import Float, Tensor
from regard.training.parallel.sharded_tensor import to_local


@dataclass(eq=False)
class ParameterState:
    """A parameter with everything its update depends on."""

    name: str
    parameter: nn.Parameter
    weight_decay: float = 0.0
    factor: float = 1.0  # learning rate factor: layer-wise decay
    rows: tuple[tuple[int, ...], int] | None = None  # row layout of a fused matrix (muon.FusedRows)
    matrix: bool = True  # False: a vector or a table of vectors, without weight decay
    state: dict[str, Tensor] = field(default_factory=dict)

    @property
    def weight(self) -> Tensor:
        """Return the local shard of the weights."""
        return to_local(self.parameter)

    @property
    def gradient(self) -> Tensor:
        """Return the local shard of the gradient."""
        assert self.parameter.grad is not None
        return to_local(self.parameter.grad)

    def local_state(self, name: str) -> Tensor:
        """Return the local shard of a state tensor."""
        return to_local(self.state[name])


class UpdateRule(Protocol):
    """Protocol of an update rule."""

    fused: bool

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        """Give each parameter its initial state."""
        ...

    def update(
        self, parts: Sequence[ParameterState], learning_rate: float | Tensor, found_inf: Float[Tensor, ""]
    ) -> None:
        """Update these parameters, all of which have a gradient."""
        ...

    def describe(self) -> str:
        """Return a short description."""
        ...


def as_dtensor(x: Tensor, like: Tensor) -> Tensor:
    """Return a local shard as a DTensor, sharded like another tensor of the same shape."""
    if not isinstance(like, DTensor):
        return x
    return DTensor.from_local(x, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())


def select_if_finite(found_inf: Float[Tensor, ""], if_finite: float | Tensor, if_skipped: float) -> Float[Tensor, ""]:
    """Return one of two numbers on the device, without a copy from the host."""
    number = if_finite.clone() if isinstance(if_finite, Tensor) else torch.full_like(found_inf, if_finite)
    return number.masked_fill_(found_inf > 0, if_skipped)


def zero_non_finite(gradients: Sequence[Tensor], found_inf: Float[Tensor, ""]) -> list[Tensor]:
    """Zero the gradients in place if `found_inf`."""
    gone = found_inf > 0
    return [g.masked_fill_(gone, 0.0) for g in gradients]


def group_by_decay(parts: Sequence[ParameterState]) -> list[tuple[list[ParameterState], float, float]]:
    """Group parameters by weight decay and factor: one call of a fused kernel each."""
    found: dict[tuple[float, float], list[ParameterState]] = {}
    for part in parts:
        found.setdefault((part.weight_decay, part.factor), []).append(part)
    return [(same, weight_decay, factor) for (weight_decay, factor), same in found.items()]


# -- sums over whole parameters ----------------------------------------------------------------------------------------


def sharded_axes(x: Tensor, dim: int) -> tuple[bool, ...]:
    """Return along which mesh axes a tensor is sharded in this dimension; () for a plain tensor."""
    if not isinstance(x, DTensor):
        return ()
    return tuple(getattr(p, "dim", None) is not None and p.dim % x.ndim == dim % x.ndim for p in x.placements)  # type: ignore[attr-defined]


def all_sharded_axes(x: Tensor) -> tuple[bool, ...]:
    """Return along which mesh axes a tensor is sharded at all."""
    return tuple(not p.is_replicate() for p in x.placements) if isinstance(x, DTensor) else ()


def all_reduce_axes(x: Tensor, mesh: DeviceMesh, axes: Sequence[bool]) -> Tensor:
    """Sum over the processes along some mesh axes, in place."""
    for axis, included in enumerate(axes):
        if included:
            dist.all_reduce(x, group=mesh.get_group(axis))
    return x


def sum_shards(
    pieces: Sequence[Tensor], parts: Sequence[ParameterState], over: Sequence[tuple[bool, ...]]
) -> list[Tensor]:
    """Sum local tensors over the mesh axes that `over` names for each parameter."""
    found = list(pieces)
    groups: dict[Any, list[int]] = {}
    for i, (part, axes) in enumerate(zip(parts, over, strict=True)):
        if any(axes):
            mesh = part.parameter.device_mesh  # type: ignore[attr-defined]
            groups.setdefault((mesh, axes), []).append(i)
    for (mesh, axes), members in groups.items():
        flat = torch.cat([pieces[i].reshape(-1) for i in members])
        all_reduce_axes(flat, mesh, axes)
        for i, piece in zip(members, flat.split([pieces[i].numel() for i in members]), strict=True):
            found[i] = piece.view_as(pieces[i])
    return found
