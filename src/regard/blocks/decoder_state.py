"""What a decoder carries from step to step, and what becomes of it when a search picks among beams.

    memory       what an input left, B ...: the same at every step, shared by its beams
    hidden       what changes with every token, B K ...: states of cells, rings of past inputs, images
    remembered   what an aligner keeps of where it looked, B K ...
    time         how many tokens were read, where a model has to know

Beams are picked by indexing the first two axes of what changes; only dropping inputs moves the memory. A frozen state
is written in place, so that a step that was recorded reads what it wrote when it is replayed.
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

    memory: Any  # whatever has `select_rows`
    hidden: Any  # tensors B K ..., in tuples
    aligner_state: Any = None  # by an aligner: None, a tensor B K ..., or a tuple of such
    time: Any = None  # a counter on the device, where there is one
    frozen: bool = False

    def updated(self, hidden: Any, aligner_state: Any = None, time: Tensor | None = None) -> DecoderState:
        """The state after a step or a reordering of its beams; without a new time it is still the old one."""
        old, new = (
            (self.hidden, self.aligner_state, self.time),
            (hidden, aligner_state, self.time if time is None else time),
        )
        if self.frozen and _same_shapes(old, new):
            tree_map(lambda old, new: old.copy_(new), old, new)
            return self
        return replace(self, hidden=new[0], aligner_state=new[1], time=new[2])


class StatefulDecodable:
    """A model that reads a source and writes a target, with a `State` in between. Left to do: `initial_states` and
    `replay_step`."""

    config: Any

    @property
    def eos(self) -> int:
        """The token that ends a target."""
        eos: int = self.config.eos
        return eos

    def initial_state(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> DecoderState:
        """The source read once: what is carried before the first token."""
        raise NotImplementedError

    def start(
        self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None, *, capacity: int
    ) -> tuple[Int[Tensor, "B 1"], DecoderState]:
        """The first token of every target, and the state before it. What is carried never grows: it needs no room."""
        first = torch.full((source.shape[0], 1), self.config.bos, device=source.device)
        return first, self.initial_state(source, source_lengths)

    def select(self, state: DecoderState, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> DecoderState:
        """Keep the inputs `rows` (None: all), of each the beams `beams`; only dropping inputs moves the memory."""
        hidden, aligner_state = gather_beams((state.hidden, state.aligner_state), rows, beams)
        if rows is None:
            return state.updated(hidden, aligner_state)
        return replace(state, memory=state.memory.select_rows(rows), hidden=hidden, aligner_state=aligner_state)


class CapturableDecodable(StatefulDecodable):
    """One whose steps are the same whatever they read, so that they can be recorded and replayed."""

    def freeze(self, state: DecoderState) -> DecoderState:
        """From here on a step overwrites the state."""
        return replace(state, frozen=True)


@dataclass(frozen=True, eq=False)
class TensorMemory:
    """A memory that is one tensor."""

    values: Float[Tensor, "B ..."] | Int[Tensor, " B"]

    def select_rows(self, rows: Int[Tensor, " R"]) -> TensorMemory:
        """Keep these inputs."""
        return TensorMemory(self.values[rows])


def gather_beams(carried: Any, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
    """Of the inputs `rows` (None: all) the beams `beams`, in every tensor B K ... of what is carried on."""
    own = (torch.arange(beams.shape[0], device=beams.device) if rows is None else rows)[:, None]
    return tree_map(lambda x: x[own, beams], carried)


def tree_map(change: Callable[..., Tensor], *states: Any) -> Any:
    """Change every tensor of what is carried on; several states are gone through side by side."""
    if states[0] is None:
        return None
    if isinstance(states[0], tuple):
        return tuple(tree_map(change, *parts) for parts in zip(*states, strict=True))
    return change(*states)


def initial_time(like: Tensor) -> Int[Tensor, ""]:
    """The time before the first token, on the device of a tensor."""
    return torch.zeros((), dtype=torch.long, device=like.device)


def _same_shapes(one: Any, other: Any) -> bool:
    """Whether both hold tensors of the same shapes in the same places."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same_shapes, one, other))
    return one is other is None or (isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape)
