"""Models that write one token after another, as two graphs.

    start    the input                              -> logits of the first token, and the state after it
    step     the newest tokens B, and the state     -> logits of the next token, and the state

The state is that of `core.decodable`, frozen: tensors whose shapes do not change. Those that a step leaves as they are
(the keys of the memory) come from `start` once and are not an output of `step`. Beams are not in the graphs: a batch is
B inputs with one text each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from regard.core.shapes import Int, Tensor
from regard.export.plan import TRACED, Graph

Rebuild = Callable[[list[Tensor]], Any]


def flatten_state(state: Any, leaves: list[Tensor]) -> Rebuild:
    """Append the tensors of a state to `leaves`; return the function that rebuilds it from such a list."""
    if isinstance(state, Tensor):
        place = len(leaves)
        leaves.append(state)
        return lambda found: found[place]
    if isinstance(state, (list, tuple)):
        items = [flatten_state(each, leaves) for each in state]
        return lambda found: type(state)(make(found) for make in items)
    if type(state).__module__.startswith("regard.") and hasattr(state, "__dict__"):  # not a traced number
        names = [field.name for field in fields(state)] if is_dataclass(state) else list(vars(state))
        # what begins with an underscore is computed anew in every step
        parts = {name: None if name[0] == "_" else flatten_state(getattr(state, name), leaves) for name in names}
        kind = type(state)

        def rebuild(found: list[Tensor]) -> Any:
            new = object.__new__(kind)
            for name, make in parts.items():
                object.__setattr__(new, name, None if make is None else make(found))
            return new

        return rebuild
    return lambda found: state


class Decoding:
    """The two graphs of a model.

    `begin` reads the inputs into the logits of the first token and a state; `banned` are tokens that are never written.
    """

    def __init__(self, model: Any, begin: Callable[..., tuple[Tensor, Any]], banned: list[int]) -> None:
        self.model, self.begin = model, begin
        self.banned = torch.tensor(sorted(set(banned)), dtype=torch.long)
        self.rebuild: Rebuild = lambda found: found
        self.changing: list[int] = []  # places of the tensors that a step changes
        self.constant: list[int] = []

    def start(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of the first token, and the tensors of the state: those that change first."""
        logits, state = self.begin(*inputs)
        leaves: list[Tensor] = []
        self.rebuild = flatten_state(state, leaves)
        ordered = [leaves[n] for n in [*self.changing, *self.constant]] or leaves
        return (self.without_banned(logits), *ordered)

    def step(self, tokens: Int[Tensor, " B"], *state: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of the next token, and the tensors of the state that changed."""
        leaves = [torch.empty(0)] * len(state)
        for place, x in zip([*self.changing, *self.constant], state, strict=True):
            leaves[place] = x.clone() if place in self.changing else x
        logits, new = self.model.step(tokens[:, None], self.rebuild(leaves))
        found: list[Tensor] = []
        flatten_state(new, found)
        return (self.without_banned(logits[:, 0]), *(found[n] for n in self.changing))

    def without_banned(self, logits: Tensor) -> Tensor:
        """Return logits with -inf for the tokens that are never written."""
        return logits.index_fill(-1, self.banned, -torch.inf) if len(self.banned) else logits

    @torch.no_grad()
    def graphs(
        self, inputs: tuple[str, ...], example: Callable[[int, int], tuple[Tensor, ...]], longest: int
    ) -> tuple[Graph, Graph]:
        """Return the graphs `start` and `step`."""
        leaves = list(self.start(*example(TRACED[0], min(TRACED[1], longest)))[1:])
        before = [(x, x._version) for x in leaves]
        _, state = self.model.step(torch.zeros(TRACED[0], 1, dtype=torch.long), self.rebuild(leaves))
        after: list[Tensor] = []
        flatten_state(state, after)
        for n, ((old, version), new) in enumerate(zip(before, after, strict=True)):
            (self.constant if new is old and old._version == version else self.changing).append(n)
        names = [f"state_{n}" for n in range(len(self.changing))] + [f"memory_{n}" for n in range(len(self.constant))]

        def stepped(rows: int, length: int) -> tuple[Tensor, ...]:
            with torch.no_grad():
                logits, *state = self.start(*example(rows, length))
            return logits.argmax(-1), *state

        start = Graph("start", self.model, self.start, inputs, ("logits", *names), example, longest)
        changed = tuple(f"next_{name}" for name in names[: len(self.changing)])
        step = Graph("step", self.model, self.step, ("tokens", *names), ("logits", *changed), stepped, longest)
        return start, step
