"""Neural Turing machine: a controller with heads that read and write a memory by attention.

    tokens      vectors of numbers (bits and marks), one a step
    positions   none: the heads move along the memory
    attention   each head over the N cells: by content, kept or moved by a shift, and sharpened
    head        linear, on the controller's output and what was read

    h_t = controller(x_t, r_{t-1})      w_t = address(h_t, M_{t-1}, w_{t-1})        r_t = w_t M_{t-1}
    M_t = M_{t-1} ∘ (1 - w_t e_tᵀ) + w_t a_tᵀ           erase e = σ(h), then add a;  y_t = linear(h_t, r_t)

    address     content -> interpolation -> shift -> sharpening (attention/addressing); with top_k, reads keep k cells

All heads of a step are addressed together. Of several write heads, all erase before any adds. The word that all cells
hold at the start is learned, from almost zero: equal cells make learning reliable (Collier, Beel), and none is special
beyond the lengths trained on. All heads begin on the first cell. The loop runs in float32: the gradient passes through
every step.

Graves, Wayne, Danihelka: Neural Turing Machines. 2014. arXiv:1410.5401
Collier, Beel: Implementing Neural Turing Machines. ICANN 2018. arXiv:1807.08518
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.attention.addressing import ADDRESSING
from regard.attention.addressing.base import Addressing
from regard.attention.observed_weights import ObservedWeights
from regard.blocks.controllers import CONTROLLERS
from regard.blocks.rnn import undecorated
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters; the defaults are those of the paper's copy task."""

    input_dim: int = 9  # numbers of an input vector
    output_dim: int = 8
    cells: int = 128  # N, of the memory
    word: int = 20  # W, numbers of a cell
    read_heads: int = 1
    write_heads: int = 1
    controller: str = "lstm"  # lstm, gru or feedforward
    hidden: int = 100
    layers: int = 1  # of the controller
    max_shift: int = 1  # cells that a head moves in a step
    top_k: int = field(0, low=0)  # cells that a read keeps; 0: all (sparse access memory)


# The first three are the paper's tables 1 and 2, with as many heads as there.
SIZES: dict[str, dict[str, Any]] = {
    "copy": {},
    "repeat_copy": {"input_dim": 10, "output_dim": 9},
    "recall": {"input_dim": 8, "output_dim": 6, "read_heads": 4, "write_heads": 4},
    "tiny": {"input_dim": 5, "output_dim": 4, "cells": 10, "word": 6, "hidden": 16},
}


class MemoryState(NamedTuple):
    """What is carried from step to step."""

    memory: Float[Tensor, "B N W"]
    address: Float[Tensor, "B H N"]  # of the read heads, then the write heads
    reads: Float[Tensor, "B RW"]
    controller: Any


class MemoryMachine(ModelContract):
    """A controller with a memory: vectors in, logits of the bits of an output vector out, at every step.

    A subclass has a `controller` and a `head`, and writes `start` and `step`.
    """

    forward_methods = ("read",)
    controller: Any
    head: nn.Linear

    def __init__(self) -> None:
        super().__init__()
        self.read_address, self.write_address = ObservedWeights("read"), ObservedWeights("write")

    def forward(self, vectors: Float[Tensor, "B T C"]) -> Float[Tensor, "B T O"]:
        """Return the logits of the output bits at every step."""
        read = undecorated(self.read) if torch.compiler.is_exporting() else self.read
        logits: Tensor = read(vectors, self.start(vectors.shape[0]))[0]
        return logits

    def start(self, batch: int) -> Any:
        """Return the state before the first step."""
        raise NotImplementedError

    def step(self, x: Float[Tensor, "B G"], state: Any) -> tuple[Float[Tensor, "B F"], Any]:
        """Return the controller's output and the state after one step; x is what the controller needs of the input.

        The state has the addresses of the read heads, then of the write heads, and what was read.
        """
        raise NotImplementedError

    @disable_compile(recursive=False)  # a loop as long as the input, whose steps may be compiled
    def read(self, vectors: Float[Tensor, "B T C"], state: Any) -> tuple[Float[Tensor, "B T O"], Any]:
        """Run from a state over one or more steps; return the logits and the new state."""
        if not vectors.shape[1]:
            raise BadInput("the tape has no steps; give at least one vector")
        with torch.autocast(vectors.device.type, enabled=False):
            known = self.controller.inputs(vectors.to(next(self.parameters()).dtype))
            outputs, addresses = [], []
            for x in known.unbind(1):
                h, state = self.step(x, state)
                outputs.append(torch.cat([h, state.reads], -1))
                addresses.append(state.address)
            reads, writes = torch.stack(addresses, 2).tensor_split([self.config.read_heads], 1)
            self.read_address(reads)
            self.write_address(writes)
            return self.head(torch.stack(outputs, 1)), state


class NTM(MemoryMachine):
    """A Neural Turing machine."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if config.max_shift > config.cells:
            raise BadInput(f"max_shift must be at most cells={config.cells}, got {config.max_shift}")
        self.config, c = config, config
        heads, reads = c.read_heads + c.write_heads, c.read_heads * c.word
        self.controller = build_part(
            CONTROLLERS, c.controller, "controller",
            input_width=c.input_dim, read_width=reads, hidden=c.hidden, layers=c.layers,
        )  # fmt: skip
        names = ("content", "interpolation", f"shift({c.max_shift})", "sharpening")
        self.rules = nn.ModuleList(build_part(ADDRESSING, name, "addressing") for name in names)
        self.sparse = build_part(ADDRESSING, f"top_k({c.top_k})", "addressing") if c.top_k else None
        self.widths = [rule.raw_width(c.word) for rule in self.rules]  # type: ignore[operator]
        self.address = nn.Linear(c.hidden, heads * sum(self.widths))
        self.write = nn.Linear(c.hidden, c.write_heads * 2 * c.word)  # what is erased, what is added
        self.memory = nn.Parameter(torch.full((c.word,), 1e-6))  # one word for all cells: none is special
        self.head = nn.Linear(c.hidden + reads, c.output_dim)
        for part in (self.address, self.write, self.head):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)

    def start(self, batch: int) -> MemoryState:
        """Return the state before the first step."""
        c = self.config
        address = self.memory.new_zeros(batch, c.read_heads + c.write_heads, c.cells)
        address[..., 0] = 1
        reads = self.memory.new_zeros(batch, c.read_heads * c.word)
        return MemoryState(self.memory.expand(batch, c.cells, -1), address, reads, self.controller.start(batch))

    def step(self, x: Float[Tensor, "B G"], state: MemoryState) -> tuple[Float[Tensor, "B F"], MemoryState]:
        h, controller = self.controller(x, state.reads, state.controller)
        raw = self.address(h).unflatten(-1, (-1, sum(self.widths))).split(self.widths, -1)
        address = state.address
        for rule, own in zip(self.rules, raw, strict=True):
            address, _ = rule(own, state.memory, address, state.address)
        read, write = address.split([self.config.read_heads, self.config.write_heads], -2)
        if isinstance(self.sparse, Addressing):
            read, _ = self.sparse(read[..., :0], state.memory, read, read)
            address = torch.cat([read, write], -2)
        erase, add = self.write(h).unflatten(-1, (-1, 2 * self.config.word)).chunk(2, -1)
        reads = (read @ state.memory).flatten(-2)
        return h, MemoryState(erase_and_add(state.memory, write, erase.sigmoid(), add), address, reads, controller)


def erase_and_add(
    memory: Float[Tensor, "*B N W"],
    address: Float[Tensor, "*B H N"],
    erase: Float[Tensor, "*B H W"],
    add: Float[Tensor, "*B H W"],
) -> Float[Tensor, "*B N W"]:
    """Return the memory after all heads have erased, and then added; zeros of both leave it unchanged to the bit."""
    kept = 1 - address[..., :1, :].mT @ erase[..., :1, :]
    for head in range(1, address.shape[-2]):  # the gradient of Tensor.prod waits for the device
        kept = kept * (1 - address[..., head : head + 1, :].mT @ erase[..., head : head + 1, :])
    return memory * kept + address.mT @ add
