"""LSTM: stacked long short-term memory over vectors, the network without an external memory.

    tokens      vectors of numbers, one a step
    positions   none: recurrence is ordered
    attention   none; all that it remembers is in its state, 2 F numbers a layer
    head        linear, on the last layer

Hochreiter, Schmidhuber: Long Short-Term Memory. Neural Computation 1997
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import torch
from torch import nn

from regard.blocks.rnn import init_rnn, run_rnn
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters; the defaults are those of the baseline of the Neural Turing machine's copy task."""

    input_dim: int = 9  # numbers of an input vector
    output_dim: int = 8
    hidden: int = 256
    layers: int = 3


# Small has about as many parameters as a Neural Turing machine with its defaults.
SIZES: dict[str, dict[str, Any]] = {
    "baseline": {},
    "small": {"hidden": 76, "layers": 2},
    "tiny": {"input_dim": 5, "output_dim": 4, "hidden": 16, "layers": 1},
}


class LSTM(ModelContract):
    """Vectors in, logits of the bits of an output vector out, at every step."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.layers = nn.LSTM(config.input_dim, config.hidden, config.layers, batch_first=True)
        self.head = nn.Linear(config.hidden, config.output_dim)
        init_rnn(self.layers)

    def forward(self, vectors: Float[Tensor, "B T C"]) -> Float[Tensor, "B T O"]:
        """Return the logits of the output bits at every step."""
        if not vectors.shape[1]:
            raise BadInput("the tape has no steps; give at least one vector")
        run = unwrap(run_rnn) if torch.compiler.is_exporting() else run_rnn
        logits: Tensor = self.head(run(self.layers, vectors))
        return logits
