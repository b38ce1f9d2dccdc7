"""Attention maps of a running model, with its fast kernels on.

| file | contents |
|---|---|
| watch | `watch`: all maps of a pass, computed beside the fused kernels |
| map_store | `watch_lazy`: what maps are made of; any row or column is computed later |
| torch_modules | models of other libraries, which attend through PyTorch's functions |

Here: `AttentionObserver`, whose methods are called while a model runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.deformable import DeformableAttention
from regard.attention.protocol import Mechanism
from regard.core.shapes import Float, Rows, Tensor
from regard.core.trace import Geometry


class AttentionObserver:
    """Base class of what follows a running model; every method may be left out."""

    in_pass = False  # whether a forward pass of the whole model runs, not a part of it (a decoding step, say)

    @property
    def needs_outputs(self) -> bool:
        """Whether `after_attention` must be called, so that a kernel may not replace a mechanism and its mixer."""
        return type(self).after_attention is not AttentionObserver.after_attention

    def on_pass_start(self) -> None:
        """Called before a forward pass of the model."""

    def before_attention(self, call: AttentionCall) -> None:
        """Called before a mechanism attends."""

    def after_attention(self, call: AttentionCall, output: Tensor) -> None:
        """Called after a mechanism has attended."""

    def on_alignment(self, name: str, module: Any, weights: Float[Tensor, "B K M"], state: Any) -> None:
        """Called with the weights of an aligner, at every step."""

    def on_weights(
        self,
        name: str,
        kind: str,
        weights: Tensor,
        to_bhnm: Callable[[Tensor], Tensor],
        geometry: Geometry | None = None,
    ) -> None:
        """Called with weights that were computed outside a mechanism; the model uses this very tensor.

        `to_bhnm` makes a map B H N M of it, or of its gradient.
        """

    def on_deformable(self, call: DeformableCall) -> None:
        """Called before deformable attention."""

    def on_gate(self, name: str, weights: Float[Tensor, "B C"]) -> None:
        """Called with weights of channels (squeeze-and-excitation)."""

    def on_token_move(self, name: str, module: Any, x: Tensor) -> None:
        """Called before a module that moves, cuts or merges tokens."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of a mechanism: its name and arguments, and the mixer that holds it, if any."""

    name: str
    module: Mechanism
    mixer: nn.Module | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    geometry: Geometry | None
    explicit_kind: str | None = None  # if there is no mixer to say it

    @property
    def kind(self) -> str:
        """Self-attention ("self") or attention to a context ("cross")."""
        return self.explicit_kind or str(getattr(self.mixer, "kind", "self"))

    @property
    def exact(self) -> bool:
        """Whether the geometry is exact, not a receptive field."""
        return bool(getattr(self.mixer, "exact_geometry", True))

    @property
    def v(self) -> Float[Tensor, "B G M E"]:
        found: Tensor = self.args[2] if len(self.args) > 2 else self.kwargs["v"]
        return found

    @property
    def weights_kwargs(self) -> dict[str, Any]:
        """Return the arguments of `weights` besides q and k: mask, bias and layer_state, if they were passed."""
        named = dict(zip(("mask", "bias"), self.args[3:], strict=False))
        return named | {a: b for a, b in self.kwargs.items() if a != "v"}


@dataclass(frozen=True, eq=False)
class DeformableCall:
    """One call of deformable attention: its name and what its matrix, which is never formed, depends on."""

    name: str
    module: DeformableAttention
    x: Float[Tensor, "B N C"]
    memory: Float[Tensor, "B M C"]  # only its shape counts: zeros that take no space
    references: Float[Tensor, "B N L R"]
    where: tuple[Any, ...]  # shapes and which cells are real

    @property
    def bytes(self) -> int:
        """Size of what is stored."""
        return self.x.nbytes + self.references.nbytes

    @torch.no_grad()
    def weights(self, rows: Rows) -> Float[Tensor, "B H n M"]:
        """Return rows of the matrix."""
        return self.module.weights(self.x[:, rows], self.memory, self.references[:, rows], *self.where)


def is_recomputing() -> bool:
    """Whether this is a backward pass, in which activation checkpointing runs the forward a second time."""
    return torch._C._current_graph_task_id() != -1
