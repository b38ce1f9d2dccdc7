"""One parameter as a rule of an update sees it, and the arithmetic that leaves an update out without asking the host.

A parameter may be a DTensor, one process holding a piece of it. What works number by number works on the `local` piece;
sums over a whole parameter go through `summed`, one exchange for all parameters together.

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
from regard.training.slices import local


@dataclass(eq=False)
class Part:
    """A parameter with all that its update depends on."""

    name: str
    parameter: nn.Parameter
    decay: float = 0.0
    factor: float = 1.0  # what the rate is multiplied with: layer-wise decay
    rows: tuple[tuple[int, ...], int] | None = None  # a fused matrix: heads of each kind in a group, rows of a head
    matrix: bool = True  # False: a vector, or a table of them; it does not decay
    state: dict[str, Tensor] = field(default_factory=dict)

    @property
    def weight(self) -> Tensor:
        """The weights that this process holds."""
        return local(self.parameter)

    @property
    def gradient(self) -> Tensor:
        """Their gradient."""
        assert self.parameter.grad is not None
        return local(self.parameter.grad)

    def kept(self, name: str) -> Tensor:
        """What this process holds of a piece of state."""
        return local(self.state[name])


class Rule(Protocol):
    """What the optimiser asks of a rule."""

    fused: bool

    def begin(self, parts: Sequence[Part]) -> None:
        """Give each parameter the state of one that has not moved yet."""
        ...

    def update(self, parts: Sequence[Part], rate: float, lost: Float[Tensor, ""]) -> None:
        """Move these parameters, all of which have a gradient."""
        ...

    def describe(self) -> str:
        """The rule in a few words."""
        ...


def spread(x: Tensor, like: Tensor) -> Tensor:
    """A local piece as a part of the whole, spread as another tensor of the same shape."""
    if not isinstance(like, DTensor):
        return x
    return DTensor.from_local(x, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())


def chosen(lost: Float[Tensor, ""], otherwise: float, if_lost: float) -> Float[Tensor, ""]:
    """One of two numbers, on the device; no number is copied there, which would wait for it."""
    return torch.full_like(lost, otherwise).masked_fill_(lost > 0, if_lost)


def silenced(gradients: Sequence[Tensor], lost: Float[Tensor, ""]) -> list[Tensor]:
    """The gradients, or zeros, in place."""
    gone = lost > 0
    return [g.masked_fill_(gone, 0.0) for g in gradients]


def alike(parts: Sequence[Part]) -> list[tuple[list[Part], float, float]]:
    """Parts with the same decay and factor together: one call of a fused kernel each."""
    found: dict[tuple[float, float], list[Part]] = {}
    for part in parts:
        found.setdefault((part.decay, part.factor), []).append(part)
    return [(same, decay, factor) for (decay, factor), same in found.items()]


# -- sums over whole parameters ----------------------------------------------------------------------------------------


def cut(x: Tensor, dim: int) -> tuple[bool, ...]:
    """Along which axes of its mesh a tensor is cut in this dimension; () where it is not spread."""
    if not isinstance(x, DTensor):
        return ()
    return tuple(getattr(p, "dim", None) is not None and p.dim % x.ndim == dim % x.ndim for p in x.placements)  # type: ignore[attr-defined]


def cut_anywhere(x: Tensor) -> tuple[bool, ...]:
    """Along which axes of its mesh a tensor is cut at all."""
    return tuple(not p.is_replicate() for p in x.placements) if isinstance(x, DTensor) else ()


def add_up(x: Tensor, mesh: DeviceMesh, axes: Sequence[bool]) -> Tensor:
    """The sum of what the processes along some axes of a mesh hold, in place."""
    for axis, meant in enumerate(axes):
        if meant:
            dist.all_reduce(x, group=mesh.get_group(axis))
    return x


def summed(pieces: Sequence[Tensor], parts: Sequence[Part], over: Sequence[tuple[bool, ...]]) -> list[Tensor]:
    """Local sums made whole: each piece is added up over the axes of its parameter's mesh that `over` names."""
    found = list(pieces)
    together: dict[Any, list[int]] = {}
    for i, (part, axes) in enumerate(zip(parts, over, strict=True)):
        if any(axes):
            mesh = part.parameter.device_mesh  # type: ignore[attr-defined]
            together.setdefault((mesh, axes), []).append(i)
    for (mesh, axes), members in together.items():
        flat = torch.cat([pieces[i].reshape(-1) for i in members])
        add_up(flat, mesh, axes)
        for i, piece in zip(members, flat.split([pieces[i].numel() for i in members]), strict=True):
            found[i] = piece.view_as(pieces[i])
    return found
