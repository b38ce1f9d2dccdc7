"""A Neural Turing machine and a DNC in plain PyTorch, as public implementations are laid out: peers for memory.py.

    PlainNTM    an `LSTMCell`; every head has a layer for each of its outputs, and is addressed by itself: cosine
                similarity, shift by `torch.roll`, sharpening by a power
    PlainDNC    an `LSTMCell`; one interface layer; content, usage, allocation and links of every head by itself

Both copy the weights of Regard's models, so that they compute the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from plain_recurrent import copy_cell
from torch import Tensor, nn


def _part(layer: nn.Linear, begin: int, width: int) -> nn.Linear:
    """Return a layer with some of the outputs of another."""
    made = nn.Linear(layer.in_features, width)
    made.weight.data.copy_(layer.weight[begin : begin + width])
    made.bias.data.copy_(layer.bias[begin : begin + width])
    return made


def similarity(memory: Tensor, key: Tensor) -> Tensor:
    """Return the cosine of a key with every cell."""
    return F.cosine_similarity(memory, key[:, None], dim=-1, eps=1e-3)


class PlainNTM(nn.Module):
    """The loop of the paper, a head at a time."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.c = c = original.config
        self.cell, self.heads = copy_cell(nn.LSTMCell, original.controller.cells.cells[0]), nn.ModuleList()
        widths = original.widths
        for number in range(c.read_heads + c.write_heads):
            begin, parts = number * sum(widths), []
            for width in (c.word, 1, *widths[1:]):  # key, strength, gate, shifts, power
                parts.append(_part(original.address, begin, width))
                begin += width
            self.heads.append(nn.ModuleList(parts))
        self.writes = nn.ModuleList(
            _part(original.write, n * c.word, c.word) for n in range(2 * c.write_heads)
        )  # erase, add
        self.memory = nn.Parameter(original.memory.detach().clone())
        self.first = nn.Parameter(original.controller.initial.detach().clone()[0])
        self.head = _part(original.head, 0, c.output_dim)

    def address(self, head: Any, h: Tensor, memory: Tensor, previous: Tensor) -> Tensor:
        """Return where a head looks."""
        key, strength, gate, shift, power = (part(h) for part in head)
        content = F.softmax((1 + F.softplus(strength)) * similarity(memory, key), -1)
        gate, shift = torch.sigmoid(gate), F.softmax(shift, -1)
        moved, most = torch.zeros_like(content), self.c.max_shift
        mixed = gate * content + (1 - gate) * previous
        for n in range(2 * most + 1):
            moved = moved + shift[:, n : n + 1] * torch.roll(mixed, n - most, -1)
        sharp = (moved + 1e-16) ** (1 + F.softplus(power))
        return sharp / sharp.sum(-1, keepdim=True)

    def forward(self, vectors: Tensor) -> Tensor:
        c, b = self.c, len(vectors)
        memory = self.memory.expand(b, c.cells, -1)
        reads = [vectors.new_zeros(b, c.word) for _ in range(c.read_heads)]
        state = tuple(part.expand(b, -1) for part in self.first)
        addresses = [F.one_hot(torch.zeros(b, dtype=torch.long, device=vectors.device), c.cells).to(vectors.dtype)]
        addresses = addresses * (c.read_heads + c.write_heads)
        outputs = []
        for t in range(vectors.shape[1]):
            state = self.cell(torch.cat([vectors[:, t], *reads], -1), state)
            h = state[0]
            addresses = [self.address(*each, memory, w) for each, w in zip(self._with(h), addresses, strict=True)]
            reads = [torch.bmm(w[:, None], memory)[:, 0] for w in addresses[: c.read_heads]]
            for n, w in enumerate(addresses[c.read_heads :]):
                memory = memory * (1 - w[..., None] * torch.sigmoid(self.writes[2 * n](h))[:, None])
            for n, w in enumerate(addresses[c.read_heads :]):
                memory = memory + w[..., None] * self.writes[2 * n + 1](h)[:, None]
            outputs.append(self.head(torch.cat([h, *reads], -1)))
        return torch.stack(outputs, 1)

    def _with(self, h: Tensor) -> list[tuple[Any, Tensor]]:
        return [(head, h) for head in self.heads]


class PlainDNC(nn.Module):
    """The loop of the Nature paper's methods, a head at a time."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.c = c = original.config
        self.cell = copy_cell(nn.LSTMCell, original.controller.cells.cells[0])
        self.interface = _part(original.interface, 0, original.interface.out_features)
        self.head = _part(original.head, 0, c.output_dim)
        self.first = nn.Parameter(original.controller.initial.detach().clone()[0])

    def forward(self, vectors: Tensor) -> Tensor:
        c, b = self.c, len(vectors)
        memory, usage, last = (vectors.new_zeros(b, c.cells, *more) for more in ((c.word,), (), ()))
        links = vectors.new_zeros(b, c.cells, c.cells)
        reads = [vectors.new_zeros(b, c.word) for _ in range(c.read_heads)]
        looked = [vectors.new_zeros(b, c.cells) for _ in range(c.read_heads)]
        state = tuple(part.expand(b, -1) for part in self.first)
        diagonal, outputs = 1 - torch.eye(c.cells, device=vectors.device), []
        for t in range(vectors.shape[1]):
            state = self.cell(torch.cat([vectors[:, t], *reads], -1), state)
            said = self.interface(state[0]).split(
                [*[c.word, 1, 3, 1] * c.read_heads, c.word, 1, 1, 1, c.word, c.word], -1
            )
            write_key, strength, allocate, gate, erase, add = said[-6:]
            to_read = [said[4 * n : 4 * n + 4] for n in range(c.read_heads)]
            for w, (_, _, _, free) in zip(looked, to_read, strict=True):
                usage = usage * (1 - torch.sigmoid(free) * w)
            used, order = torch.sort(usage, -1)
            product = torch.cumprod(torch.cat([torch.ones_like(used[:, :1]), used], -1), -1)[:, :-1]
            free_cells = torch.zeros_like(usage).scatter(-1, order, (1 - used) * product)
            content = F.softmax((1 + F.softplus(strength)) * similarity(memory, write_key), -1)
            chosen = torch.sigmoid(allocate)
            write = torch.sigmoid(gate) * (chosen * free_cells + (1 - chosen) * content)
            memory = memory * (1 - write[..., None] * torch.sigmoid(erase)[:, None]) + write[..., None] * add[:, None]
            usage = usage + write - usage * write
            links = (1 - write[:, :, None] - write[:, None, :]) * links + write[:, :, None] * last[:, None, :]
            links = links * diagonal
            last = (1 - write.sum(-1, keepdim=True)) * last + write
            before, looked = looked, []
            for w, (key, strength, modes, _) in zip(before, to_read, strict=True):
                content = F.softmax((1 + F.softplus(strength)) * similarity(memory, key), -1)
                back, ahead = torch.bmm(w[:, None], links)[:, 0], torch.bmm(links, w[..., None])[..., 0]
                modes = F.softmax(modes, -1)
                looked.append(modes[:, :1] * back + modes[:, 1:2] * content + modes[:, 2:] * ahead)
            reads = [torch.bmm(w[:, None], memory)[:, 0] for w in looked]
            outputs.append(self.head(torch.cat([state[0], *reads], -1)))
        return torch.stack(outputs, 1)
