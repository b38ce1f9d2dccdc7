"""What travels beside x: one `PassState` for each pass, in which every layer has its `LayerState`.

A layer reads what the layer below left and leaves its own; terms for the loss are added by name. Both are keyed by
depth, so that recomputation (activation checkpointing) overwrites and never adds twice.
"""

from __future__ import annotations

from typing import Any

from regard.core.shapes import Tensor


class PassState:
    """The notes of one forward pass."""

    def __init__(self) -> None:
        self.published: dict[tuple[int, str], Any] = {}
        self.losses: dict[tuple[int, str], Tensor] = {}

    def layer(self, depth: int) -> LayerState:
        """The memo as layer `depth` sees it."""
        return LayerState(self, depth)

    def total_loss(self, name: str) -> Tensor | None:
        """The sum over layers of a named loss term; None where no layer added one."""
        terms = [value for (_, key), value in sorted(self.losses.items(), key=lambda item: item[0]) if key == name]
        return sum(terms[1:], terms[0]) if terms else None


class LayerState:
    """What one layer may read and write."""

    def __init__(self, pass_state: PassState, depth: int) -> None:
        self.pass_state, self.depth = pass_state, depth

    def previous(self, name: str) -> Any:
        """What the layer below left under this name, or None."""
        return self.pass_state.published.get((self.depth - 1, name))

    def publish(self, name: str, value: Any) -> None:
        """Leave a value for the layer above."""
        self.pass_state.published[self.depth, name] = value

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a differentiable term to the task's loss."""
        self.pass_state.losses[self.depth, name] = value
