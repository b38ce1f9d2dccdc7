"""The protocol of autoregressive models: start, step, select.

A batch of B inputs with K beams each is B K everywhere: beams are queries of the same input, not copies of it. Only the
model reads the state. Contract: N steps equal one forward.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from regard.core.shapes import Float, Int, Tensor


@runtime_checkable
class Decodable(Protocol):
    """What greedy, sampling and beam search need of a model."""

    @property
    def eos(self) -> int:
        """The token that ends an output."""
        ...

    def start(self, *inputs: Any, capacity: int) -> tuple[Int[Tensor, "B 1"], Any]:
        """Encode the inputs; return the first token of every output and a state for up to `capacity` tokens."""
        ...

    def step(self, tokens: Int[Tensor, "B K"], state: Any) -> tuple[Float[Tensor, "B K V"], Any]:
        """Return the logits of the next token for every beam, and the new state."""
        ...

    def select(self, state: Any, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
        """Keep the inputs `rows` (None: all, in place) and, of each, the beams `beams`; K may change."""
        ...
