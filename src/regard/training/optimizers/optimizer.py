"""The optimiser: clipping, one of the rules in optimisers/, and no update from a gradient that is not finite.

    norm of the gradient -> clip -> rule        the norm, and whether it is finite, stay on the device: nothing waits
    decay                                       matrices decay; vectors (norms, biases) do not, nor what a part spares:
                                                learned tokens, and tables of positions of models over images
    rate of a layer                             rate · layer_decay ** (layers above it)
    moments/<parameter>/<name>                  the state: named tensors, there from the start, filled in place

With layer-wise decay the head and final norms move at the full rate, the last block at layer_decay times that, and so
on down to the embeddings, one layer below the first block. Encoder and decoder are counted each by itself; the blocks
of stages are counted through, and what leads into a stage goes with its first block.

Parameters may be DTensors, each process holding a piece: the norm is that of the whole gradient, on every process the
same, and a piece of state is spread as its parameter is.
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

# in the name of what comes before the first block
EMBEDDING_WORDS = ("embed", "segment", "position", "patch", "token", "embed_norm", "stem")


class Optimizer:
    """A rule, and what all rules have in common.

    `rows`: how fused matrices are ordered, muon.projections(model); `spares`: what does not decay, spared(model).
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
                trained.setdefault(p, name)  # what is tied goes by its first name
        if not trained:
            raise BadInput("there is nothing to train: no parameter wants a gradient")
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
        """Whether the update is one of torch's fused kernels."""
        return self.rule.fused

    @torch.no_grad()
    def step(self, learning_rate: float) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """One update at this rate from the gradients at hand, which are then let go.

        Gives their norm, and 1 where it was not finite and the update was left out, else 0.
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
        """The whole state by name; to restore it, write into these tensors."""
        return {f"moments/{part.name}/{name}": x for part in self.states for name, x in part.state.items()}

    def describe(self) -> str:
        """The rule in a few words, for a run's first line."""
        how = self.rule.describe()
        return how if self.layer_decay == 1 else f"{how}, rates x{self.layer_decay:g} a layer down"


def parameters_without_decay(model: nn.Module) -> set[str]:
    """The parameters that a model's parts want spared from weight decay: each names its own, or what holds them."""
    owned = [f"{path}.{own}." for path, part in model.named_modules() for own in getattr(part, "no_weight_decay", ())]
    begins = tuple(name.lstrip(".") for name in owned)
    return {name for name, _ in model.named_parameters() if f"{name}.".startswith(begins)}


# -- the norm ----------------------------------------------------------------------------------------------------------


def total_norm(gradients: Sequence[Tensor]) -> Float[Tensor, ""]:
    """The norm of all gradients as one vector, whole where they are spread over processes."""
    kinds: dict[Any, list[Tensor]] = {}
    for g in gradients:  # those that are cut alike together
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
    """A gradient spread like its parameter: tensor parallelism may leave sums of it to be done."""
    g = p.grad
    if isinstance(p, DTensor) and isinstance(g, DTensor) and g.placements != p.placements:
        p.grad = g.redistribute(placements=p.placements)


# -- rates by layer ----------------------------------------------------------------------------------------------------


def layer_factors(names: Sequence[str], layer_decay: float) -> dict[str, float]:
    """What the rate of each parameter is multiplied with."""
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
    """The stack a parameter belongs to, and the numbers of its stage and its block there."""
    if name.startswith("stem."):
        return None
    if staged := re.match(r"(?:(.*?)\.)?stages\.(\d+)\.(?:(?:blocks\.)?(\d+)\.)?", name):
        return staged[1] or "", int(staged[2]), int(staged[3] or 0)
    inside = re.match(r"(?:(.*?)\.)?blocks\.(\d+)\.", name)
    return (inside[1] or "", 0, int(inside[2])) if inside else None


def _blocks_above(depth: Mapping[tuple[str, int], int], stack: str, stage: int) -> int:
    """How many blocks of a stack stand above a stage."""
    return sum(many for (other, at), many in depth.items() if other == stack and at > stage)
