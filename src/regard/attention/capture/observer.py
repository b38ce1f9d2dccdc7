"""Whoever stands beside a model while it runs, and what they are told.

capture.py tells of the parts of this library, foreign.py of all others; watching (capture.py) and keeping (kept.py) are
two who listen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.protocol import Mechanism
from regard.core.shapes import Float, Tensor
from regard.core.trace import Geometry


class AttentionObserver:
    """Whoever stands beside a model while it runs, and is told what happens; each word may be passed over."""

    def on_pass_start(self) -> None:
        """The model begins a pass."""

    def before_attention(self, call: AttentionCall) -> None:
        """A mechanism is about to attend."""

    def after_attention(self, call: AttentionCall, output: Tensor) -> None:
        """It has attended."""

    def on_alignment(self, name: str, module: Any, weights: Float[Tensor, "B K M"], state: Any) -> None:
        """An aligner has looked."""

    def on_weights(self, name: str, kind: str, weights: Float[Tensor, "B H N M"]) -> None:
        """A matrix of weights was formed that no mechanism of ours knows of; what follows is made of this tensor."""

    def on_token_move(self, name: str, module: Any, x: Tensor) -> None:
        """Tokens are about to be moved, cut or merged."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """A mechanism that attends, what it was given, and where: `mixer` is what holds it, where something does."""

    name: str
    module: Mechanism
    mixer: nn.Module | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    geometry: Geometry | None
    explicit_kind: str | None = None  # its kind, where no mixer says it

    @property
    def kind(self) -> str:
        """Among themselves ("self"), or at others ("cross")."""
        return self.explicit_kind or str(getattr(self.mixer, "kind", "self"))

    @property
    def exact(self) -> bool:
        """Whether the geometry is an identity, not a receptive field."""
        return bool(getattr(self.mixer, "exact_geometry", True))

    @property
    def v(self) -> Float[Tensor, "B G M E"]:
        """The values."""
        found: Tensor = self.args[2] if len(self.args) > 2 else self.kwargs["v"]
        return found

    @property
    def weights_kwargs(self) -> dict[str, Any]:
        """What `map_rows` takes beside q and k: mask, bias and layer_state, where they were given."""
        named = dict(zip(("mask", "bias"), self.args[3:], strict=False))
        return named | {a: b for a, b in self.kwargs.items() if a != "v"}


def is_recomputing() -> bool:
    """Inside a backward pass: activation checkpointing runs the forward a second time."""
    return torch._C._current_graph_task_id() != -1
