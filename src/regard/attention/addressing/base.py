"""Addressing: one rule on the way from a controller's outputs to the address of a head.

    raw        *B H P    what the controller says to each head, before any squashing; P is `raw_width`
    memory     *B N W    N cells of W numbers
    weights    *B H N    the address that the rule before has made
    previous   *B H N    the address of the step before
    state      a tuple of tensors *B ..., in nested tuples, from `start`; `after_write` updates it

*B is any number of leading axes: B in training, B K (beams) in a search, whose helpers reorder and freeze the state.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from regard.core.shapes import Float, Tensor

State = tuple[Any, ...]


class Addressing(nn.Module):
    """A rule; a file writes `raw_width` and `address`, or `forward`, `start` and `after_write` if it has a state."""

    normalised: ClassVar[bool] = True  # an address that sums to one still does; False: it sums to at most one

    def raw_width(self, word: int) -> int:
        """Return the number P of controller outputs of a head; `word` is the width W of a cell."""
        raise NotImplementedError

    def start(self, weights: Float[Tensor, "*B H N"]) -> State:
        """Return the state before the first step; `weights` gives shape, device and dtype."""
        return ()

    def forward(
        self,
        raw: Float[Tensor, "*B H P"],
        memory: Float[Tensor, "*B N W"],
        weights: Float[Tensor, "*B H N"],
        previous: Float[Tensor, "*B H N"],
        state: State = (),
    ) -> tuple[Float[Tensor, "*B H N"], State]:
        """Return the new address, and the state."""
        return self.address(raw, memory, weights, previous), state

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        """Return the new address of a rule without a state."""
        raise NotImplementedError

    def after_write(self, state: State, write: Float[Tensor, "*B N"]) -> State:
        """Return the state after a write at this address."""
        return state
