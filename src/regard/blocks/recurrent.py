"""Recurrence: networks that read a padded batch in one direction or in both, and cells that go one step further.

    rnn     s' = tanh(x + U s)
    gru     r, z = σ(x + U s)        n = tanh(x + r ∘ U s)        s' = (1 - z) ∘ n + z ∘ s
    lstm    i, f, o = σ(x + U s)     g = tanh(x + U s)            c' = f ∘ c + i ∘ g        s' = o ∘ tanh(c')

x is what comes from the input, and each gate has rows of its own in it and in U. The units are PyTorch's, in its order
of gates: the reset gate r acts on the product U s and not on s itself.

    Reader     a whole input at once: stacked, in one direction or both, padding changes nothing
    Onward     a whole output at once where it is known, or one step of every beam: stacked, forwards
    Cells      one step of every beam, where part of the input depends on the state: stacked

What Onward and Cells carry from step to step has one form: for every layer a tuple of tensors B K F, the state s first
(an LSTM's c after it), so that beams are picked by the first two axes.

Elman: Finding Structure in Time. 1990. Hochreiter, Schmidhuber: Long Short-Term Memory. 1997. Cho et al.: Learning
Phrase Representations using RNN Encoder-Decoder. EMNLP 2014. arXiv:1406.1078
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import unwrap
from typing import Any, ClassVar

import torch
from torch import nn

from regard.blocks import CELLS
from regard.core.compiler import uncompiled
from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import resolve

States = Any  # for every layer its parts: tuple[tuple[Tensor, ...], ...]

# -- reading -----------------------------------------------------------------------------------------------------------


class Reader(nn.Module):
    """Layers of recurrent networks that read each sequence forwards and, with two directions, backwards as well.

    The way back runs forwards over sequences that were turned round within their own lengths. So it begins at the last
    real token, padding changes nothing, and no length has to leave the device, as it would for packed sequences. Equal
    to PyTorch's network of as many layers and directions over a packed sequence.
    """

    cell: ClassVar[str]

    def __init__(self, width: int, hidden: int, layers: int = 1, directions: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        if directions not in (1, 2):
            raise RegardError(f"a sequence is read in 1 or 2 directions, not {directions}")
        unit = unit_of(self.cell)
        self.hidden, self.width = hidden, directions * hidden  # the latter is that of what comes out
        inner = [width, *[self.width] * (layers - 1)]
        self.forth = nn.ModuleList(unit.network(size, hidden, batch_first=True) for size in inner)
        both = inner if directions == 2 else []
        self.back = nn.ModuleList(unit.network(size, hidden, batch_first=True) for size in both)
        self.drop = nn.Dropout(dropout)  # between layers
        for part in (*self.forth, *self.back):
            start_network(part)

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N both"]:
        """The states of the last layer, forwards first; padding gives zeros."""
        turn = None if lengths is None else turned(x.shape[1], lengths, x.device)
        for depth, forth in enumerate(self.forth):
            x = self.drop(x) if depth else x
            states = run(forth, x)
            if len(self.back):
                states = torch.cat([states, turn_round(run(self.back[depth], turn_round(x, turn)), turn)], -1)
            x = states
        return x if lengths is None else x * _real(x, lengths)

    def step(self, x: Float[Tensor, "B K C"], states: States) -> States:
        """The states after one more step, of a reader of one direction."""
        if len(self.back):
            raise RegardError("a network that reads backwards too must have heard all: take directions=1")
        weights: list[list[Tensor]] = [network.all_weights[0] for network in self.forth]  # type: ignore[index, misc]
        return stepped(unit_of(self.cell), weights, x, states)

    def ends(
        self, states: Float[Tensor, "B N both"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B D F"]:
        """The state in which each direction ended: forwards at the last real token, backwards at the first."""
        each = states.unflatten(-1, (-1, self.hidden))  # B N D F
        if not states.shape[1]:
            return each.sum(1)
        if lengths is None:
            return torch.cat([each[:, -1, :1], each[:, 0, 1:]], 1)
        at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.hidden)
        return torch.cat([each[:, :, 0].gather(1, at), each[:, 0, 1:]], 1)


class RNNReader(Reader):
    """A plain recurrent network."""

    cell = "rnn"


class LSTMReader(Reader):
    """Long short-term memory."""

    cell = "lstm"


class GRUReader(Reader):
    """Gated recurrent units."""

    cell = "gru"


class NoReader(nn.Module):
    """No recurrence: the vectors of the tokens themselves are what is read, each without its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = self.width = width

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N C"]:
        """As they come; padding gives zeros."""
        return x if lengths is None else x * _real(x, lengths)

    def ends(self, states: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B 1 C"]:
        """Their mean: there is no last state."""
        count = states.new_tensor(states.shape[1]) if lengths is None else lengths[:, None, None]
        return states.sum(1, keepdim=True) / count.clamp(min=1)


def turned(n: int, lengths: Int[Tensor, " B"], device: torch.device) -> Int[Tensor, "B N"]:
    """For each place the one it changes with when a row is turned round within its length; its own inverse."""
    place = torch.arange(n, device=device)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def turn_round(x: Float[Tensor, "B N C"], turn: Int[Tensor, "B N"] | None) -> Float[Tensor, "B N C"]:
    """Every row the other way round; done twice, as it was."""
    return x.flip(1) if turn is None else x.gather(1, turn[..., None].expand_as(x))


@uncompiled
def run(network: Any, x: Tensor, first: Any = None) -> Tensor:
    """All states of an nn.RNNBase. Not under autocast: in half precision small gradients would vanish."""
    if not x.shape[1]:
        return x.new_zeros(*x.shape[:2], network.hidden_size)
    with torch.autocast(x.device.type, enabled=False):
        states, _ = network(x.to(network.all_weights[0][0].dtype), first)
    return states


def bare(method: Any) -> Callable[..., Any]:
    """A method without what keeps a compiler out of it (`uncompiled`). An exported program has no Python to go back to:
    there a loop is written out, for as many steps as the example has."""
    return partial(unwrap(method.__func__), method.__self__)


def stepped(unit: type[Cell], weights: Sequence[Sequence[Tensor]], x: Float[Tensor, "B K C"], states: States) -> States:
    """The states of stacked layers after one more step, by the weights of PyTorch's networks."""
    moved = []
    for (inputs, recurrent, *biases), state in zip(weights, states, strict=True):
        given = nn.functional.linear(x, inputs, biases[0])
        moved.append(unit.move(given, nn.functional.linear(state[0], recurrent, biases[1]), state))
        x = moved[-1][0]
    return tuple(moved)


def _real(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]


# -- writing -----------------------------------------------------------------------------------------------------------


class Onward(nn.Module):
    """Stacked layers that go forwards: over a whole sequence in one fused call, or one step of every beam."""

    def __init__(self, cell: str, width: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.unit = unit_of(cell)
        self.network = self.unit.network(
            width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        start_network(self.network)

    def forward(self, x: Float[Tensor, "B T C"], states: States) -> Float[Tensor, "B T F"]:
        """The states of the last layer at all times; before them stands one beam of an input."""
        parts = [torch.cat(part, 1).transpose(0, 1).contiguous() for part in zip(*states, strict=True)]  # each L B F
        return run(self.network, x, parts[0] if len(parts) == 1 else tuple(parts))

    def step(self, x: Float[Tensor, "B K C"], states: States) -> States:
        """The states after one more step."""
        return stepped(self.unit, self.network.all_weights, x, states)


class Cells(nn.Module):
    """Stacked cells, the first of them over two inputs: one known for all times beforehand, one that depends on the
    state. `known` is that part of its gates which can be taken for a whole sequence at once."""

    def __init__(
        self, cell: str, known_width: int, width: int, hidden: int, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        unit = unit_of(cell)
        above = (unit(0, hidden, hidden) for _ in range(layers - 1))
        self.cells = nn.ModuleList([unit(known_width, width, hidden), *above])
        self.drop = nn.Dropout(dropout)  # between layers

    def known(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T gates"]:
        """What can be taken at once."""
        first = self.cells[0]
        assert isinstance(first, Cell)
        assert first.known is not None
        return first.known(x)

    def forward(self, known: Float[Tensor, "B K gates"], given: Float[Tensor, "B K C"], states: States) -> States:
        """The states after one more step."""
        moved = [self.cells[0](known, given, states[0])]
        for cell, state in zip(self.cells[1:], states[1:], strict=True):
            moved.append(cell(None, self.drop(moved[-1][0]), state))
        return tuple(moved)


class Start(nn.Module):
    """The first states of all layers, out of a vector: tanh of a linear map, as in the first decoders."""

    def __init__(self, cell: str, width: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.layers, self.parts = layers, unit_of(cell).parts
        self.map = nn.Linear(width, layers * self.parts * hidden)
        nn.init.xavier_uniform_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: Float[Tensor, "B C"]) -> States:
        """One beam of every input. Not narrowed by autocast: what is carried from step to step stays as it was."""
        made = torch.tanh(self.map(x)).to(self.map.weight.dtype)[:, None]
        parts = made.chunk(self.layers * self.parts, -1)
        return tuple(parts[at : at + self.parts] for at in range(0, len(parts), self.parts))


# -- cells -------------------------------------------------------------------------------------------------------------


class Cell(nn.Module):
    """A recurrent cell over two inputs: one known for all times beforehand (of width 0: none), one that depends on the
    state. Equal to PyTorch's cell over the two inputs side by side."""

    gates: ClassVar[int]
    parts: ClassVar[int] = 1  # tensors that are carried on
    network: ClassVar[Callable[..., nn.RNNBase]]  # the same over whole sequences

    def __init__(self, known_width: int, width: int, hidden: int) -> None:
        super().__init__()
        rows = self.gates * hidden
        self.known = nn.Linear(known_width, rows) if known_width else None
        self.given = nn.Linear(width, rows, bias=not known_width)
        self.state = nn.Linear(hidden, rows)
        for part, fill in ((self.known, _INPUTS), (self.given, _INPUTS), (self.state, _STATES)):
            if part is not None:
                start_gates(part.weight, self.gates, fill)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def forward(
        self, known: Float[Tensor, "B K gates"] | None, given: Float[Tensor, "B K C"], state: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """The next state."""
        inputs = self.given(given) if known is None else known + self.given(given)
        return self.move(inputs, self.state(state[0]), state)

    @staticmethod
    def move(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The next state, from what comes of the inputs and what comes of the state itself."""
        raise NotImplementedError


def unit_of(name: str) -> type[Cell]:
    """The kind of cell that has this name."""
    return resolve(CELLS, name, "cell")


class RNNCell(Cell):
    """A plain recurrent cell."""

    gates, network = 1, nn.RNN

    @staticmethod
    def move(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Both, squashed."""
        return (torch.tanh(inputs + own),)


class GRUCell(Cell):
    """A gated recurrent unit."""

    gates, network = 3, nn.GRU

    @staticmethod
    def move(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Between the old state and a new one."""
        sizes = [2 * state[0].shape[-1], state[0].shape[-1]]
        input_gates, input_new = inputs.split(sizes, -1)
        own_gates, own_new = own.split(sizes, -1)
        reset, keep = torch.sigmoid(input_gates + own_gates).chunk(2, -1)
        new = torch.tanh(torch.addcmul(input_new, reset, own_new))
        return (new + keep * (state[0] - new),)


class LSTMCell(Cell):
    """Long short-term memory."""

    gates, parts, network = 4, 2, nn.LSTM

    @staticmethod
    def move(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Some of the old content, some of the new, and of both what is to be shown."""
        write, keep, new, show = (inputs + own).chunk(4, -1)
        content = torch.sigmoid(keep) * state[1] + torch.sigmoid(write) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(content), content


_INPUTS, _STATES = nn.init.xavier_uniform_, nn.init.orthogonal_


def start_network(network: nn.RNNBase) -> None:
    """Fresh weights for one of PyTorch's networks."""
    for inputs, states, *biases in network.all_weights:
        gates = inputs.shape[0] // network.hidden_size
        start_gates(inputs, gates, _INPUTS)
        start_gates(states, gates, _STATES)
        for bias in biases:
            nn.init.zeros_(bias)


def start_gates(weight: Tensor, gates: int, fill: Callable[[Tensor], Tensor]) -> None:
    """Fresh gates, each by itself: Xavier for what comes from the input, orthogonal for what comes from the state."""
    with torch.no_grad():
        for gate in weight.chunk(gates):
            fill(gate)
