"""Differentiable neural computer: a memory that knows which cells are free, and in what order it was written.

    tokens      vectors of numbers, one a step
    positions   none: temporal links keep the order of writing
    attention   one write head (content, or a free cell), several read heads (content, or along the links)
    head        linear, on the controller's output and what was read

    write       w = g_w (g_a allocation + (1 - g_a) content(M_{t-1}))             M_t = M_{t-1} ∘ (1 - w eᵀ) + w aᵀ
    read        w^r = π₁ backward + π₂ content(M_t) + π₃ forward                  r = w^r M_t

    NTM         finds free cells and the next one by moving its heads to neighbours; a cell is never freed

Three named options make small ones train (Csordás, Schmidhuber): `masking` compares only a part of a cell,
`deallocation` clears the cells that are freed, M_{t-1} ∘ ψ, and `sharpening` keeps addresses along links sharp. Without
`temporal_links` and `allocation` it is content addressing alone. O(N²) a step for the links.

Graves et al.: Hybrid computing using a neural network with dynamic external memory. Nature 538, 2016
Csordás, Schmidhuber: Improving Differentiable Neural Computers Through Memory Masking, De-allocation, and Link
Distribution Sharpness Control. ICLR 2019. arXiv:1904.10278
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.attention.addressing import ADDRESSING
from regard.blocks.controllers import CONTROLLERS
from regard.blocks.decoder_state import tree_map
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.ntm import MemoryMachine, erase_and_add


@dataclass(frozen=True)
class Config:
    """Hyperparameters."""

    input_dim: int = 9  # numbers of an input vector
    output_dim: int = 8
    cells: int = 128  # N, of the memory
    word: int = 20  # W, numbers of a cell
    read_heads: int = 1
    controller: str = "lstm"  # lstm, gru or feedforward
    hidden: int = 100
    layers: int = 1  # of the controller
    allocation: bool = True  # write to free cells
    temporal_links: bool = True  # read in the order of writing
    masking: bool = False  # compare only a part of a cell
    deallocation: bool = False  # clear cells that are freed
    sharpening: bool = False  # of addresses along links


# Babi is the paper's (Nature 538, extended data, table 2); improved has the three options on.
SIZES: dict[str, dict[str, Any]] = {
    "copy": {},
    "babi": {"cells": 256, "word": 64, "read_heads": 4, "hidden": 256},
    "improved": {"masking": True, "deallocation": True, "sharpening": True},
    "tiny": {"input_dim": 5, "output_dim": 4, "cells": 10, "word": 6, "hidden": 16, "read_heads": 2},
}


class DNCState(NamedTuple):
    """What is carried from step to step."""

    memory: Float[Tensor, "B N W"]
    address: Float[Tensor, "B H N"]  # of the read heads, then the write head
    reads: Float[Tensor, "B RW"]
    controller: Any
    usage: Any  # state of the allocation
    links: Any  # state of the links


class DNC(MemoryMachine):
    """A differentiable neural computer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if config.deallocation and not config.allocation:
            raise BadInput("deallocation clears the cells that allocation frees; set allocation=True")
        if config.sharpening and not config.temporal_links:
            raise BadInput("sharpening is of temporal links; set temporal_links=True")
        self.config, c = config, config
        self.controller = build_part(
            CONTROLLERS, c.controller, "controller",
            input_width=c.input_dim, read_width=c.read_heads * c.word, hidden=c.hidden, layers=c.layers,
        )  # fmt: skip
        self.content = build_part(ADDRESSING, "masked_content" if c.masking else "content", "addressing")
        links = "sharpened_links" if c.sharpening else "temporal_links"
        self.links = build_part(ADDRESSING, links, "addressing") if c.temporal_links else None
        self.allocation = build_part(ADDRESSING, "allocation", "addressing") if c.allocation else None
        key = self.content.raw_width(c.word)
        # of a read head: key, links, free gate; of the write head: key, gates of allocation and of writing, erase, add
        self.read_widths = [
            key,
            *(0 if rule is None else rule.raw_width(c.word) for rule in (self.links, self.allocation)),
        ]
        self.write_widths = [key, 1, 1, c.word, c.word]
        self.interface = nn.Linear(c.hidden, c.read_heads * sum(self.read_widths) + sum(self.write_widths))
        self.head = nn.Linear(c.hidden + c.read_heads * c.word, c.output_dim)
        for part in (self.interface, self.head):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)

    def start(self, batch: int) -> DNCState:
        c, like = self.config, self.head.weight
        address = like.new_zeros(batch, c.read_heads + 1, c.cells)
        return DNCState(
            like.new_zeros(batch, c.cells, c.word),
            address,
            like.new_zeros(batch, c.read_heads * c.word),
            self.controller.start(batch),
            () if self.allocation is None else self.allocation.start(address),
            () if self.links is None else self.links.start(address),
        )

    def step(
        self, x: Float[Tensor, "B G"], state: DNCState, real: Bool[Tensor, "B 1"] | None = None
    ) -> tuple[Float[Tensor, "B F"], DNCState]:
        """Return the controller's output and the state after one step; rows that are not `real` still are at the start.

        Before anything was written a memory is zeros, and where its heads look changes nothing.
        """
        c = self.config
        h, controller = self.controller(x, state.reads, state.controller)
        if real is not None:
            controller = tree_map(lambda new, old: torch.where(real, new, old), controller, state.controller)
        to_read, to_write = self.interface(h).tensor_split([c.read_heads * sum(self.read_widths)], -1)
        key, modes, free = to_read.unflatten(-1, (c.read_heads, -1)).split(self.read_widths, -1)
        write_key, allocate, gate, erase, add = to_write[..., None, :].split(self.write_widths, -1)
        before, memory, usage, links = state.address[:, : c.read_heads], state.memory, state.usage, state.links
        # write
        last = state.address[:, c.read_heads :]
        write, _ = self.content(write_key, memory, last, last)
        if self.allocation is not None:
            free_cells, usage = self.allocation(free, memory, before, before, usage)
            write = torch.lerp(write, free_cells, torch.sigmoid(allocate))
        write = torch.sigmoid(gate) * write
        if real is not None:
            write = write * real[..., None]
        if c.deallocation:
            memory = memory * usage[1][..., None]
        memory = erase_and_add(memory, write, torch.sigmoid(erase), add)
        # read
        read, _ = self.content(key, memory, before, before)
        if self.allocation is not None:
            usage = self.allocation.after_write(usage, write[:, 0])
        if self.links is not None:
            links = self.links.after_write(links, write[:, 0])
            read, _ = self.links(modes, memory, read, before, links)
        reads = (read @ memory).flatten(-2)
        return h, DNCState(memory, torch.cat([read, write], -2), reads, controller, usage, links)
