"""What travels beside x: one `PassState` for each forward pass, of which every layer gets its `LayerState`.

A layer reads what the layer below published and publishes its own; it adds differentiable terms to the task's loss by
name. Both are stored by depth, so that recomputation (activation checkpointing) overwrites and never adds twice. A
stack makes a `PassState` for each pass unless its caller hands one in, to read the losses and what was published. For a
recurrent decoder, depth counts the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.core.shapes import Tensor


class LayerState:
    """What one layer may read and write."""

    __slots__ = ("_prefix", "below", "depth", "losses", "published")

    def __init__(self, depth: int, below: LayerState | None = None) -> None:
        self.depth, self.below = depth, below
        self.published: dict[str, Any] = {}
        self.losses: dict[str, Tensor] = {}
        self._prefix = ""

    def scope(self, name: str) -> LayerState:
        """Return the state of a second attention of the same layer ("cross"), whose names are its own."""
        return _ScopedLayerState(self, f"{self._prefix}{name}.")

    def previous(self, name: str) -> Any:
        """Return what the layer below published under this name, or None."""
        return None if self.below is None else self.below.published.get(self._prefix + name)

    def publish(self, name: str, value: Any) -> None:
        """Make a value available to the layer above and to the caller of the pass."""
        self.published[self._prefix + name] = value

    def add_loss(self, name: str, value: Tensor) -> None:
        """Add a differentiable term to the task's loss."""
        self.losses[self._prefix + name] = value


class _ScopedLayerState(LayerState):
    """A layer state under a prefix. It reads the state only when asked: compiled blocks are compiled again for every
    difference in what they read, and the first block has none below."""

    __slots__ = ("_state",)

    def __init__(self, state: LayerState, prefix: str) -> None:
        self._state, self._prefix = state, prefix

    depth = property(lambda self: self._state.depth)
    below = property(lambda self: self._state.below)
    published = property(lambda self: self._state.published)
    losses = property(lambda self: self._state.losses)


class PassState:
    """The layer states of one forward pass."""

    def __init__(self) -> None:
        self.layers: dict[tuple[str, int], LayerState] = {}  # by branch and depth
        self._branch = ""

    def branch(self, name: str) -> PassState:
        """Return a view for one of several stacks ("encoder", "decoder"), whose depths then do not collide."""
        view = PassState()
        view.layers, view._branch = self.layers, f"{self._branch}{name}."
        return view

    def layer(self, depth: int) -> LayerState:
        """Return the state of layer `depth`; request layers from the lowest up."""
        key = self._branch, depth
        found = self.layers.get(key)
        if found is None:
            found = self.layers[key] = LayerState(depth, self.layers.get((self._branch, depth - 1)))
        return found

    def collect(self, name: str) -> list[Any]:
        """Return what the layers published under a name, in order of branch and depth."""
        return [
            layer.published[name] for _, layer in sorted(self.layers.items(), key=_place) if name in layer.published
        ]

    def losses(self, name: str) -> list[Tensor]:
        """Return the loss terms of a name, in order of branch and depth."""
        return [layer.losses[name] for _, layer in sorted(self.layers.items(), key=_place) if name in layer.losses]

    def total_loss(self, name: str) -> Tensor | None:
        """Return the sum over layers of a named loss term; None if no layer added one."""
        terms = self.losses(name)
        return sum(terms[1:], terms[0]) if terms else None

    def weighted_loss(self, weights: Mapping[str, float]) -> Tensor | None:
        """Return the sum of all loss terms, each times the weight of its name (default 1); None if there are none."""
        names = sorted({name for layer in self.layers.values() for name in layer.losses})
        terms = [weights.get(name, 1.0) * total for name in names if (total := self.total_loss(name)) is not None]
        return sum(terms[1:], terms[0]) if terms else None


def branch(pass_state: PassState | None, name: str) -> PassState | None:
    """Return the branch of a pass state that a caller may have handed in; None: the stack makes its own."""
    return None if pass_state is None else pass_state.branch(name)


def _place(item: tuple[tuple[str, int], LayerState]) -> tuple[str, int]:
    return item[0]
