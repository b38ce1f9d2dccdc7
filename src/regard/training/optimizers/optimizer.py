"""The optimizer: gradient clipping, one of the update rules, and no update from a gradient that is not finite.

    norm of the gradient -> clip -> rule        the norm, and whether it is finite, stay on the device: nothing waits
    weight decay                                matrices only; not vectors (norms, biases) nor what a module lists in
                                                `no_weight_decay`: learned tokens, position tables of image models
    layer-wise learning rate                    lr · layer_decay ** (layers above)
    moments/<parameter>/<name>                  the state: named tensors, allocated at the start, updated in place

With layer-wise decay the head and final norms use the full learning rate, the last block layer_decay times that, and so
on down to the embeddings, one layer below the first block. Encoder and decoder are counted separately; the blocks of
stages are counted through, and the modules between stages belong to the next stage's first block.

Parameters may be DTensors: the norm is that of the whole gradient, the same on every process, and state is sharded like
its parameter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part
from regard.training.optimizers import OPTIMIZERS
from regard.training.optimizers.muon import FusedRows
from regard.training.optimizers.parameter_state import ParameterState, UpdateRule, all_reduce_axes, all_sharded_axes
from regard.training.parallel.sharded_tensor import to_local

# parts of the names of parameters before the first block
EMBEDDING_WORDS = ("embed", "segment", "position", "patch", "token", "stem")


class Optimizer:
    """An update rule, and what all rules share.

    `rows`: row layout of fused matrices, from `fused_projections(model)`; `no_decay`: parameters without weight decay,
    from `parameters_without_decay(model)`.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        spec: str = "adamw",
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip_grad_norm: float = 0.0,
        layer_decay: float = 1.0,
        rows: Mapping[str, FusedRows] | None = None,
        no_decay: Set[str] = frozenset(),
    ) -> None:
        trained: dict[nn.Parameter, str] = {}
        for name, p in parameters.items():
            if p.requires_grad:
                trained.setdefault(p, name)  # tied parameters go by their first name
        if not trained:
            raise BadInput("there is nothing to train: no parameter requires a gradient")
        self.clip_grad_norm, self.layer_decay = clip_grad_norm, layer_decay
        factors = layer_factors(list(trained.values()), layer_decay)
        order = rows or {}
        self.states = []
        for p, name in trained.items():
            matrix = p.ndim >= 2 and name not in no_decay
            self.states.append(
                ParameterState(name, p, weight_decay if matrix else 0.0, factors[name], order.get(name), matrix)
            )
        device = to_local(self.states[0].parameter.detach()).device
        self.rule: UpdateRule = build_part(OPTIMIZERS, spec, "optimizer", betas=betas, eps=eps, device=device)
        self.rule.init_state(self.states)

    @property
    def fused(self) -> bool:
        """Return whether the update is one of torch's fused kernels."""
        return self.rule.fused

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Update from the current gradients at this learning rate, then free them.

        Returns the gradient norm, and 1 if it was not finite and the update was skipped, else 0.
        """
        moved = [part for part in self.states if part.parameter.grad is not None]
        for part in moved:
            _redistribute_gradient(part.parameter)
        norm = total_norm([part.parameter.grad for part in moved if part.parameter.grad is not None])
        if self.clip_grad_norm:
            torch._foreach_mul_([part.gradient for part in moved], (self.clip_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        found_inf = (~torch.isfinite(norm)).float()
        self.rule.update(moved, learning_rate, found_inf)
        for part in moved:
            part.parameter.grad = None
        return norm, found_inf

    def tensors(self) -> dict[str, Tensor]:
        """Return the whole state by name; to restore it, write into these tensors."""
        return {f"moments/{part.name}/{name}": x for part in self.states for name, x in part.state.items()}

    def describe(self) -> str:
        """Return a short description for a run's first line."""
        how = self.rule.describe()
        return how if self.layer_decay == 1 else f"{how}, layer decay {self.layer_decay:g}"


def parameters_without_decay(model: nn.Module) -> set[str]:
    """Return the parameters that modules list in `no_weight_decay`, themselves or the modules that hold them."""
    owned = [f"{path}.{own}." for path, part in model.named_modules() for own in getattr(part, "no_weight_decay", ())]
    begins = tuple(name.lstrip(".") for name in owned)
    return {name for name, _ in model.named_parameters() if f"{name}.".startswith(begins)}


# -- norm --------------------------------------------------------------------------------------------------------------


def total_norm(gradients: Sequence[Tensor]) -> Float[Tensor, ""]:
    """Return the norm of all gradients as one vector; of whole gradients where they are sharded."""
    kinds: dict[Any, list[Tensor]] = {}
    for g in gradients:  # those with the same sharding together
        kinds.setdefault((g.device_mesh, all_sharded_axes(g)) if isinstance(g, DTensor) else None, []).append(
            to_local(g)
        )
    norms = []
    for kind, some in kinds.items():
        own = nn.utils.get_total_norm(some)
        norms.append(own if kind is None else all_reduce_axes(own.square(), *kind).sqrt())
    if len(norms) == 1:
        return norms[0]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)


def _redistribute_gradient(p: nn.Parameter) -> None:
    """Shard a gradient like its parameter; tensor parallelism may leave partial sums."""
    g = p.grad
    if isinstance(p, DTensor) and isinstance(g, DTensor) and g.placements != p.placements:
        p.grad = g.redistribute(placements=p.placements)


# -- layer-wise learning rates -----------------------------------------------------------------------------------------


def layer_factors(names: Sequence[str], layer_decay: float) -> dict[str, float]:
    """Return the learning rate factor of each parameter."""
    places = {name: _layer_position(name) for name in names}
    depth: dict[tuple[str, int], int] = {}  # blocks of each stage of each stack
    for place in places.values():
        if place is not None:
            stack, stage, block = place
            depth[stack, stage] = max(depth.get((stack, stage), 0), block + 1)
    deepest = max((_blocks_above(depth, stack, -1) for stack, _ in depth), default=0)
    found = {}
    for name, place in places.items():
        if place is None:
            below = name == "prefix_tokens" or any(
                word in name for word in EMBEDDING_WORDS
            )  # tokens before those of an image
            found[name] = layer_decay ** (deepest + 1 if below else 0)
        else:
            stack, stage, block = place
            found[name] = layer_decay ** (_blocks_above(depth, stack, stage) + depth[stack, stage] - block)
    return found


def _layer_position(name: str) -> tuple[str, int, int] | None:
    """Return the stack of a parameter, and the numbers of its stage and block there; None outside blocks."""
    if name.startswith("stem."):
        return None
    if staged := re.match(r"(?:(.*?)\.)?stages\.(\d+)\.(?:(?:blocks\.)?(\d+)\.)?", name):
        return staged[1] or "", int(staged[2]), int(staged[3] or 0)
    inside = re.match(r"(?:(.*?)\.)?blocks\.(\d+)\.", name)
    return (inside[1] or "", 0, int(inside[2])) if inside else None


def _blocks_above(depth: Mapping[tuple[str, int], int], stack: str, stage: int) -> int:
    """Return how many blocks of a stack are above a stage."""
    return sum(many for (other, at), many in depth.items() if other == stack and at > stage)
