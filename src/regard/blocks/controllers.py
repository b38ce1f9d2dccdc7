"""Controllers: the networks that work an external memory, one step at a time.

    recurrent      h, state = cell(x, reads, state)       gates of x are computed for all steps at once
    feedforward    h = tanh(A x + B reads)                no state: all that it remembers is in the memory

x is the input of the step, known beforehand; reads is what the heads read the step before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.blocks.rnn import RNNCellStack, cell_class
from regard.core.shapes import Float, Tensor
from regard.core.spec import Registry

CONTROLLERS: Registry = {
    "lstm": ("regard.blocks.controllers", "LSTMController"),
    "gru": ("regard.blocks.controllers", "GRUController"),
    "feedforward": ("regard.blocks.controllers", "FeedForwardController"),
}


class RecurrentController(nn.Module):
    """Stacked recurrent cells; the initial state is learned."""

    cell: str

    def __init__(self, input_width: int, read_width: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.cells = RNNCellStack(self.cell, input_width, read_width, hidden, layers)
        self.initial = nn.Parameter(torch.zeros(layers, cell_class(self.cell).parts, hidden))

    def start(self, batch: int) -> Any:
        """Return the state before the first step: for every layer a tuple of B F."""
        return tuple(tuple(part.expand(batch, -1) for part in layer) for layer in self.initial)

    def inputs(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T G"]:
        """Return what the steps need of the input, for all of them."""
        return self.cells.input_gates(x)

    def forward(
        self, x: Float[Tensor, "B G"], reads: Float[Tensor, "B RW"], state: Any
    ) -> tuple[Float[Tensor, "B F"], Any]:
        """Return the output of a step, and the state after it."""
        state = self.cells(x, reads, state)
        return state[-1][0], state


class LSTMController(RecurrentController):
    """Long short-term memory."""

    cell = "lstm"


class GRUController(RecurrentController):
    """Gated recurrent units."""

    cell = "gru"


class FeedForwardController(nn.Module):
    """One hidden layer, or `layers` of them."""

    def __init__(self, input_width: int, read_width: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.input = nn.Linear(input_width, hidden)
        self.reads = nn.Linear(read_width, hidden, bias=False)
        self.above = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers - 1))

    def start(self, batch: int) -> Any:
        """Return the state: none."""
        return ()

    def inputs(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T G"]:
        """Return A x for all steps."""
        found: Tensor = self.input(x)
        return found

    def forward(
        self, x: Float[Tensor, "B G"], reads: Float[Tensor, "B RW"], state: Any
    ) -> tuple[Float[Tensor, "B F"], Any]:
        """Return the output of a step, and no state."""
        h = torch.tanh(x + self.reads(reads))
        for layer in self.above:
            h = torch.tanh(layer(h))
        return h, state
