"""The state of recurrent and convolutional decoders, and how a search selects beams in it.

    memory          the encoded input, B ...: the same at every step, shared by its beams
    hidden          what changes with every token, B K ...: states of cells, rings of past inputs
    aligner_state   the state of the aligner, B K ...
    time            the number of tokens read, if the model needs it

Beams are selected by indexing the first two axes of what changes; only dropping inputs moves the memory. A frozen state
is written in place, so that a captured step reads what it wrote when it is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.core.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class DecoderState:
    """Everything that decoding carries from step to step."""

    memory: Any  # has `select_rows`
    hidden: Any  # tensors B K ..., in nested tuples
    aligner_state: Any = None  # None, a tensor B K ..., or a tuple of such
    time: Any = None  # a counter on the device, or None
    frozen: bool = False

    def updated(self, hidden: Any, aligner_state: Any = None, time: Tensor | None = None) -> DecoderState:
        """Return the state after a step or a reordering of its beams; `time` None keeps the old one."""
        old, new = (
            (self.hidden, self.aligner_state, self.time),
            (hidden, aligner_state, self.time if time is None else time),
        )
        if self.frozen and _same_shapes(old, new):
            tree_map(lambda old, new: old.copy_(new), old, new)
            return self
        return replace(self, hidden=new[0], aligner_state=new[1], time=new[2])


class StatefulDecodable:
    """Base class of models that decode with a `DecoderState`; a subclass writes `initial_state` and `step`."""

    config: Any

    @property
    def eos(self) -> int:
        eos: int = self.config.eos
        return eos

    def initial_state(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> DecoderState:
        """Read the source and return the state before the first token."""
        raise NotImplementedError

    def start(
        self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], DecoderState]:
        """Return the first token of every target and the state before it; the state never grows, `capacity` is not
        needed."""
        first = torch.full((source.shape[0], 1), self.config.bos, device=source.device)
        return first, self.initial_state(source, source_lengths)

    def select(self, state: DecoderState, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> DecoderState:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves the memory."""
        hidden, aligner_state = gather_beams((state.hidden, state.aligner_state), rows, beams)
        if rows is None:
            return state.updated(hidden, aligner_state)
        return replace(state, memory=state.memory.select_rows(rows), hidden=hidden, aligner_state=aligner_state)


class CapturableDecodable(StatefulDecodable):
    """One whose steps have static shapes, so that they can be captured and replayed."""

    def freeze(self, state: DecoderState) -> DecoderState:
        """Return a state that steps overwrite in place."""
        return replace(state, frozen=True)


@dataclass(frozen=True, eq=False)
class TensorMemory:
    """A memory of one tensor."""

    values: Float[Tensor, "B ..."] | Int[Tensor, " B"]

    def select_rows(self, rows: Int[Tensor, " R"]) -> TensorMemory:
        return TensorMemory(self.values[rows])


def gather_beams(state: Any, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
    """Return the beams `beams` of the inputs `rows` (None: all) in every tensor B K ... of a state."""
    own = (torch.arange(beams.shape[0], device=beams.device) if rows is None else rows)[:, None]
    return tree_map(lambda x: x[own, beams], state)


def tree_map(change: Callable[..., Tensor], *states: Any) -> Any:
    """Apply a function to every tensor of a nested tuple, or to the corresponding tensors of several."""
    if states[0] is None:
        return None
    if isinstance(states[0], tuple):
        return tuple(tree_map(change, *parts) for parts in zip(*states, strict=True))
    return change(*states)


def initial_time(like: Tensor) -> Int[Tensor, ""]:
    """Return time zero as a tensor on the device of another."""
    return torch.zeros((), dtype=torch.long, device=like.device)


def _same_shapes(one: Any, other: Any) -> bool:
    """Whether two nested tuples have tensors of the same shapes."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same_shapes, one, other))
    return one is other is None or (isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape)
