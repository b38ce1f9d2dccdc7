"""One parameter as a rule of an update sees it, and the arithmetic that leaves an update out without asking the host.

A parameter may be a DTensor, one process holding a piece of it. What works number by number works on the `to_local` piece;
sums over a whole parameter go through `sum_shards`, one exchange for all parameters together.

`lost` is a number on the device: 1 where the gradient is not finite. Then the gradient is replaced by zeros, means are
multiplied with 1, and steps with 0: all is as it was, to the bit.
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
    """A parameter with all that its update depends on."""

    name: str
    parameter: nn.Parameter
    weight_decay: float = 0.0
    factor: float = 1.0  # what the rate is multiplied with: layer-wise decay
    rows: tuple[tuple[int, ...], int] | None = None  # a fused matrix: heads of each kind in a group, rows of a head
    matrix: bool = True  # False: a vector, or a table of them; it does not decay
    state: dict[str, Tensor] = field(default_factory=dict)

    @property
    def weight(self) -> Tensor:
        """The weights that this process holds."""
        return to_local(self.parameter)

    @property
    def gradient(self) -> Tensor:
        """Their gradient."""
        assert self.parameter.grad is not None
        return to_local(self.parameter.grad)

    def local_state(self, name: str) -> Tensor:
        """What this process holds of a piece of state."""
        return to_local(self.state[name])


class UpdateRule(Protocol):
    """What the optimiser asks of a rule."""

    fused: bool

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        """Give each parameter the state of one that has not moved yet."""
        ...

    def update(self, parts: Sequence[ParameterState], learning_rate: float, found_inf: Float[Tensor, ""]) -> None:
        """Move these parameters, all of which have a gradient."""
        ...

    def describe(self) -> str:
        """The rule in a few words."""
        ...


def as_dtensor(x: Tensor, like: Tensor) -> Tensor:
    """A local piece as a part of the whole, spread as another tensor of the same shape."""
    if not isinstance(like, DTensor):
        return x
    return DTensor.from_local(x, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())


def select_if_finite(found_inf: Float[Tensor, ""], otherwise: float, if_lost: float) -> Float[Tensor, ""]:
    """One of two numbers, on the device; no number is copied there, which would wait for it."""
    return torch.full_like(found_inf, otherwise).masked_fill_(found_inf > 0, if_lost)


def zero_non_finite(gradients: Sequence[Tensor], found_inf: Float[Tensor, ""]) -> list[Tensor]:
    """The gradients, or zeros, in place."""
    gone = found_inf > 0
    return [g.masked_fill_(gone, 0.0) for g in gradients]


def group_by_decay(parts: Sequence[ParameterState]) -> list[tuple[list[ParameterState], float, float]]:
    """Parts with the same decay and factor together: one call of a fused kernel each."""
    found: dict[tuple[float, float], list[ParameterState]] = {}
    for part in parts:
        found.setdefault((part.weight_decay, part.factor), []).append(part)
    return [(same, weight_decay, factor) for (weight_decay, factor), same in found.items()]


# -- sums over whole parameters ----------------------------------------------------------------------------------------


def sharded_axes(x: Tensor, dim: int) -> tuple[bool, ...]:
    """Along which axes of its mesh a tensor is cut in this dimension; () where it is not spread."""
    if not isinstance(x, DTensor):
        return ()
    return tuple(getattr(p, "dim", None) is not None and p.dim % x.ndim == dim % x.ndim for p in x.placements)  # type: ignore[attr-defined]


def all_sharded_axes(x: Tensor) -> tuple[bool, ...]:
    """Along which axes of its mesh a tensor is cut at all."""
    return tuple(not p.is_replicate() for p in x.placements) if isinstance(x, DTensor) else ()


def all_reduce_axes(x: Tensor, mesh: DeviceMesh, axes: Sequence[bool]) -> Tensor:
    """The sum of what the processes along some axes of a mesh hold, in place."""
    for axis, meant in enumerate(axes):
        if meant:
            dist.all_reduce(x, group=mesh.get_group(axis))
    return x


def sum_shards(
    pieces: Sequence[Tensor], parts: Sequence[ParameterState], over: Sequence[tuple[bool, ...]]
) -> list[Tensor]:
    """Local sums made whole: each piece is added up over the axes of its parameter's mesh that `over` names."""
    found = list(pieces)
    together: dict[Any, list[int]] = {}
    for i, (part, axes) in enumerate(zip(parts, over, strict=True)):
        if any(axes):
            mesh = part.parameter.device_mesh  # type: ignore[attr-defined]
            together.setdefault((mesh, axes), []).append(i)
    for (mesh, axes), members in together.items():
        flat = torch.cat([pieces[i].reshape(-1) for i in members])
        all_reduce_axes(flat, mesh, axes)
        for i, piece in zip(members, flat.split([pieces[i].numel() for i in members]), strict=True):
            found[i] = piece.view_as(pieces[i])
    return found
