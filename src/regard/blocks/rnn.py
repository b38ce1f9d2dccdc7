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
from regard.core.errors import RegardError
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import resolve
from regard.core.validation import Fraction

States = Any  # for every layer its parts: tuple[tuple[Tensor, ...], ...]

# -- reading -----------------------------------------------------------------------------------------------------------


class RecurrentEncoder(nn.Module):
    """Layers of recurrent networks that read each sequence forwards and, with two directions, backwards as well.

    The way back runs forwards over sequences that were turned round within their own lengths. So it begins at the last
    real token, padding changes nothing, and no length has to leave the device, as it would for packed sequences. Equal
    to PyTorch's network of as many layers and directions over a packed sequence.
    """

    cell: ClassVar[str]

    def __init__(self, width: int, hidden: int, layers: int = 1, directions: int = 2, dropout: Fraction = 0.0) -> None:
        super().__init__()
        if directions not in (1, 2):
            raise RegardError(f"a sequence is read in 1 or 2 directions, not {directions}")
        unit = cell_class(self.cell)
        self.hidden, self.width = hidden, directions * hidden  # the latter is that of what comes out
        inner = [width, *[self.width] * (layers - 1)]
        self.forward_layers = nn.ModuleList(unit.network(size, hidden, batch_first=True) for size in inner)
        both = inner if directions == 2 else []
        self.backward_layers = nn.ModuleList(unit.network(size, hidden, batch_first=True) for size in both)
        self.drop = nn.Dropout(dropout)  # between layers
        for part in (*self.forward_layers, *self.backward_layers):
            init_rnn(part)

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N both"]:
        """The states of the last layer, forwards first; padding gives zeros."""
        turn = None if lengths is None else reverse_index(x.shape[1], lengths, x.device)
        for depth, forth in enumerate(self.forward_layers):
            x = self.drop(x) if depth else x
            states = run_rnn(forth, x)
            if len(self.backward_layers):
                states = torch.cat(
                    [states, reverse_padded(run_rnn(self.backward_layers[depth], reverse_padded(x, turn)), turn)], -1
                )
            x = states
        return x if lengths is None else x * _length_mask(x, lengths)

    def step(self, x: Float[Tensor, "B K C"], states: States) -> States:
        """The states after one more step, of a reader of one direction."""
        if len(self.backward_layers):
            raise RegardError("a network that reads backwards too must have heard all: take directions=1")
        weights: list[list[Tensor]] = [network.all_weights[0] for network in self.forward_layers]  # type: ignore[index, misc]
        return step_layers(cell_class(self.cell), weights, x, states)

    def final_states(
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


class RNNEncoder(RecurrentEncoder):
    """A plain recurrent network."""

    cell = "rnn"


class LSTMEncoder(RecurrentEncoder):
    """Long short-term memory."""

    cell = "lstm"


class GRUEncoder(RecurrentEncoder):
    """Gated recurrent units."""

    cell = "gru"


class IdentityEncoder(nn.Module):
    """No recurrence: the vectors of the tokens themselves are what is read, each without its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = self.width = width

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N C"]:
        """As they come; padding gives zeros."""
        return x if lengths is None else x * _length_mask(x, lengths)

    def final_states(
        self, states: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B 1 C"]:
        """Their mean: there is no last state."""
        count = states.new_tensor(states.shape[1]) if lengths is None else lengths[:, None, None]
        return states.sum(1, keepdim=True) / count.clamp(min=1)


def reverse_index(n: int, lengths: Int[Tensor, " B"], device: torch.device) -> Int[Tensor, "B N"]:
    """For each place the one it changes with when a row is turned round within its length; its own inverse."""
    place = torch.arange(n, device=device)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def reverse_padded(x: Float[Tensor, "B N C"], turn: Int[Tensor, "B N"] | None) -> Float[Tensor, "B N C"]:
    """Every row the other way round; done twice, as it was."""
    return x.flip(1) if turn is None else x.gather(1, turn[..., None].expand_as(x))


@disable_compile
def run_rnn(network: Any, x: Tensor, first: Any = None) -> Tensor:
    """All states of an nn.RNNBase. Not under autocast: in half precision small gradients would vanish."""
    if not x.shape[1]:
        return x.new_zeros(*x.shape[:2], network.hidden_size)
    with torch.autocast(x.device.type, enabled=False):
        states, _ = network(x.to(network.all_weights[0][0].dtype), first)
    return states


def undecorated(method: Any) -> Callable[..., Any]:
    """A method without what keeps a compiler out of it (`disable_compile`). An exported program has no Python to go
    back to: there a loop is written out, for as many steps as the example has."""
    return partial(unwrap(method.__func__), method.__self__)


def step_layers(
    unit: type[RNNCellBase], weights: Sequence[Sequence[Tensor]], x: Float[Tensor, "B K C"], states: States
) -> States:
    """The states of stacked layers after one more step, by the weights of PyTorch's networks."""
    moved = []
    for (inputs, recurrent, *biases), state in zip(weights, states, strict=True):
        given = nn.functional.linear(x, inputs, biases[0])
        moved.append(unit.next_state(given, nn.functional.linear(state[0], recurrent, biases[1]), state))
        x = moved[-1][0]
    return tuple(moved)


def _length_mask(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]


# -- writing -----------------------------------------------------------------------------------------------------------


class StackedRNN(nn.Module):
    """Stacked layers that go forwards: over a whole sequence in one fused call, or one step of every beam."""

    def __init__(self, cell: str, width: int, hidden: int, layers: int = 1, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.unit = cell_class(cell)
        self.network = self.unit.network(
            width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        init_rnn(self.network)

    def forward(self, x: Float[Tensor, "B T C"], states: States) -> Float[Tensor, "B T F"]:
        """The states of the last layer at all times; before them stands one beam of an input."""
        parts = [torch.cat(part, 1).transpose(0, 1).contiguous() for part in zip(*states, strict=True)]  # each L B F
        return run_rnn(self.network, x, parts[0] if len(parts) == 1 else tuple(parts))

    def step(self, x: Float[Tensor, "B K C"], states: States) -> States:
        """The states after one more step."""
        return step_layers(self.unit, self.network.all_weights, x, states)


class RNNCellStack(nn.Module):
    """Stacked cells, the first of them over two inputs: one known for all times beforehand, one that depends on the
    state. `describe_labels` is that part of its gates which can be taken for a whole sequence at once."""

    def __init__(
        self, cell: str, input_width: int, width: int, hidden: int, layers: int = 1, dropout: Fraction = 0.0
    ) -> None:
        super().__init__()
        unit = cell_class(cell)
        above = (unit(0, hidden, hidden) for _ in range(layers - 1))
        self.cells = nn.ModuleList([unit(input_width, width, hidden), *above])
        self.drop = nn.Dropout(dropout)  # between layers

    def input_gates(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T gates"]:
        """What can be taken at once."""
        first = self.cells[0]
        assert isinstance(first, RNNCellBase)
        assert first.input_gates is not None
        return first.input_gates(x)

    def forward(
        self, input_gates: Float[Tensor, "B K gates"], context_gates: Float[Tensor, "B K C"], states: States
    ) -> States:
        """The states after one more step."""
        moved = [self.cells[0](input_gates, context_gates, states[0])]
        for cell, state in zip(self.cells[1:], states[1:], strict=True):
            moved.append(cell(None, self.drop(moved[-1][0]), state))
        return tuple(moved)


class InitialState(nn.Module):
    """The first states of all layers, out of a vector: tanh of a linear map, as in the first decoders."""

    def __init__(self, cell: str, width: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.layers, self.parts = layers, cell_class(cell).parts
        self.map = nn.Linear(width, layers * self.parts * hidden)
        nn.init.xavier_uniform_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: Float[Tensor, "B C"]) -> States:
        """One beam of every input. Not narrowed by autocast: what is carried from step to step stays as it was."""
        made = torch.tanh(self.map(x)).to(self.map.weight.dtype)[:, None]
        parts = made.chunk(self.layers * self.parts, -1)
        return tuple(parts[at : at + self.parts] for at in range(0, len(parts), self.parts))


# -- cells -------------------------------------------------------------------------------------------------------------


class RNNCellBase(nn.Module):
    """A recurrent cell over two inputs: one known for all times beforehand (of width 0: none), one that depends on the
    state. Equal to PyTorch's cell over the two inputs side by side."""

    gates: ClassVar[int]
    parts: ClassVar[int] = 1  # tensors that are carried on
    network: ClassVar[Callable[..., nn.RNNBase]]  # the same over whole sequences

    def __init__(self, input_width: int, width: int, hidden: int) -> None:
        super().__init__()
        rows = self.gates * hidden
        self.input_gates = nn.Linear(input_width, rows) if input_width else None
        self.context_gates = nn.Linear(width, rows, bias=not input_width)
        self.state = nn.Linear(hidden, rows)
        for part, fill in ((self.input_gates, _INPUTS), (self.context_gates, _INPUTS), (self.state, _STATES)):
            if part is not None:
                init_gates(part.weight, self.gates, fill)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def forward(
        self,
        input_gates: Float[Tensor, "B K gates"] | None,
        context_gates: Float[Tensor, "B K C"],
        state: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """The next state."""
        inputs = (
            self.context_gates(context_gates)
            if input_gates is None
            else input_gates + self.context_gates(context_gates)
        )
        return self.next_state(inputs, self.state(state[0]), state)

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The next state, from what comes of the inputs and what comes of the state itself."""
        raise NotImplementedError


def cell_class(name: str) -> type[RNNCellBase]:
    """The kind of cell that has this name."""
    return resolve(CELLS, name, "cell")


class RNNCell(RNNCellBase):
    """A plain recurrent cell."""

    gates, network = 1, nn.RNN

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Both, squashed."""
        return (torch.tanh(inputs + own),)


class GRUCell(RNNCellBase):
    """A gated recurrent unit."""

    gates, network = 3, nn.GRU

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Between the old state and a new one."""
        sizes = [2 * state[0].shape[-1], state[0].shape[-1]]
        input_gates, input_new = inputs.split(sizes, -1)
        own_gates, own_new = own.split(sizes, -1)
        reset, keep = torch.sigmoid(input_gates + own_gates).chunk(2, -1)
        new = torch.tanh(torch.addcmul(input_new, reset, own_new))
        return (new + keep * (state[0] - new),)


class LSTMCell(RNNCellBase):
    """Long short-term memory."""

    gates, parts, network = 4, 2, nn.LSTM

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Some of the old content, some of the new, and of both what is to be shown."""
        write, keep, new, show = (inputs + own).chunk(4, -1)
        content = torch.sigmoid(keep) * state[1] + torch.sigmoid(write) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(content), content


_INPUTS, _STATES = nn.init.xavier_uniform_, nn.init.orthogonal_


def init_rnn(network: nn.RNNBase) -> None:
    """Fresh weights for one of PyTorch's networks."""
    for inputs, states, *biases in network.all_weights:
        gates = inputs.shape[0] // network.hidden_size
        init_gates(inputs, gates, _INPUTS)
        init_gates(states, gates, _STATES)
        for bias in biases:
            nn.init.zeros_(bias)


def init_gates(weight: Tensor, gates: int, fill: Callable[[Tensor], Tensor]) -> None:
    """Fresh gates, each by itself: Xavier for what comes from the input, orthogonal for what comes from the state."""
    with torch.no_grad():
        for gate in weight.chunk(gates):
            fill(gate)
