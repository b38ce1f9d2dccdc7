"""What travels beside x: one `Memo` for each pass, in which every layer has its `Place`.

A layer reads what the layer below left and leaves its own; terms for the loss are added by name. Both are keyed by
depth, so that recomputation (activation checkpointing) overwrites and never adds twice.
"""

from __future__ import annotations

from typing import Any

from regard.core.shapes import Tensor


class Memo:
    """The notes of one forward pass."""

    def __init__(self) -> None:
        self.left: dict[tuple[int, str], Any] = {}
        self.losses: dict[tuple[int, str], Tensor] = {}

    def at(self, depth: int) -> Place:
        """The memo as layer `depth` sees it."""
        return Place(self, depth)

    def loss(self, name: str) -> Tensor | None:
        """The sum over layers of a named loss term; None where no layer added one."""
        terms = [value for (_, key), value in sorted(self.losses.items(), key=lambda item: item[0]) if key == name]
        return sum(terms[1:], terms[0]) if terms else None


class Place:
    """What one layer may read and write."""

    def __init__(self, memo: Memo, depth: int) -> None:
        self.memo, self.depth = memo, depth

    def below(self, name: str) -> Any:
        """What the layer below left under this name, or None."""
        return self.memo.left.get((self.depth - 1, name))

    def leave(self, name: str, value: Any) -> None:
        """Leave a value for the layer above."""
        self.memo.left[self.depth, name] = value

    def loss(self, name: str, value: Tensor) -> None:
        """Add a differentiable term to the task's loss."""
        self.memo.losses[self.depth, name] = value
