"""Stepping: the three verbs of anything that writes one token after another.

A batch of B inputs with K beams each is B K everywhere: beams are queries of the same input, not copies of it. The
state is a value that only the model reads. Law: N steps equal one forward.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from regard.core.shapes import Float, Int, Tensor


@runtime_checkable
class Decodable(Protocol):
    """What every search needs of a model."""

    @property
    def eos(self) -> int:
        """The token that ends an output."""
        ...

    def start(self, *inputs: Any, capacity: int) -> tuple[Int[Tensor, "B 1"], Any]:
        """Read the inputs once: the first token of every output, and a state with room for `room` tokens."""
        ...

    def step(self, tokens: Int[Tensor, "B K"], state: Any) -> tuple[Float[Tensor, "B K V"], Any]:
        """Logits of the next token of every beam."""
        ...

    def select(self, state: Any, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
        """Keep the inputs `rows` (None: all, in place), of each the beams `beams`, whose number may change."""
        ...
