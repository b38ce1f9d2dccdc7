"""Recurrent networks: encoders that read a padded batch in one or both directions, and cells that step.

    rnn     s' = tanh(x + U s)
    gru     r, z = σ(x + U s)        n = tanh(x + r ∘ U s)        s' = (1 - z) ∘ n + z ∘ s
    lstm    i, f, o = σ(x + U s)     g = tanh(x + U s)            c' = f ∘ c + i ∘ g        s' = o ∘ tanh(c')

x is the part of the gates that comes from the input. Cells and order of gates are PyTorch's: the reset gate r acts on
the product U s, not on s itself.

    RecurrentEncoder   a whole input at once: stacked, in one direction or both, padding changes nothing
    StackedRNN         a whole target at once, or one step of every beam: stacked, forwards
    RNNCellStack       one step of every beam, where part of the input depends on the state: stacked

The state of a decoder is a tuple for every layer of tensors B K F, the state s first (then an LSTM's c), so that beams
are selected by the first two axes.

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

# -- encoders ----------------------------------------------------------------------------------------------------------


class RecurrentEncoder(nn.Module):
    """Stacked recurrent layers that read each sequence forwards and, with two directions, backwards as well.

    The backward direction runs over sequences reversed within their own lengths. So it begins at the last real token,
    padding changes nothing, and no length has to leave the device, as it would for packed sequences. Equal to PyTorch's
    network of as many layers and directions over a packed sequence.
    """

    cell: ClassVar[str]

    def __init__(self, width: int, hidden: int, layers: int = 1, directions: int = 2, dropout: Fraction = 0.0) -> None:
        super().__init__()
        if directions not in (1, 2):
            raise RegardError(f"directions must be 1 or 2, got {directions}")
        unit = cell_class(self.cell)
        self.hidden, self.width = hidden, directions * hidden  # the latter is the output width
        inner = [width, *[self.width] * (layers - 1)]
        self.forward_layers = nn.ModuleList(unit.network(size, hidden, batch_first=True) for size in inner)
        both = inner if directions == 2 else []
        self.backward_layers = nn.ModuleList(unit.network(size, hidden, batch_first=True) for size in both)
        self.drop = nn.Dropout(dropout)  # between layers
        for part in (*self.forward_layers, *self.backward_layers):
            init_rnn(part)

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N both"]:
        """Return the states of the last layer, forwards first; zeros at padding."""
        order = None if lengths is None else reverse_index(x.shape[1], lengths, x.device)
        for depth, forth in enumerate(self.forward_layers):
            x = self.drop(x) if depth else x
            states = run_rnn(forth, x)
            if len(self.backward_layers):
                states = torch.cat(
                    [states, reverse_padded(run_rnn(self.backward_layers[depth], reverse_padded(x, order)), order)], -1
                )
            x = states
        return x if lengths is None else x * _length_mask(x, lengths)

    def step(self, x: Float[Tensor, "B K C"], states: States) -> States:
        """Return the states after one more token; only for one direction."""
        if len(self.backward_layers):
            raise RegardError("a bidirectional encoder needs the whole input and cannot step; use directions=1")
        weights: list[list[Tensor]] = [network.all_weights[0] for network in self.forward_layers]  # type: ignore[index, misc]
        return step_layers(cell_class(self.cell), weights, x, states)

    def final_states(
        self, states: Float[Tensor, "B N both"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B D F"]:
        """Return the last state of each direction: forwards at the last real token, backwards at the first."""
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
    """No recurrence: return the token vectors themselves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = self.width = width

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N C"]:
        return x if lengths is None else x * _length_mask(x, lengths)

    def final_states(
        self, states: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B 1 C"]:
        """Return the mean of the vectors, since there is no last state."""
        count = states.new_tensor(states.shape[1]) if lengths is None else lengths[:, None, None]
        return states.sum(1, keepdim=True) / count.clamp(min=1)


def reverse_index(n: int, lengths: Int[Tensor, " B"], device: torch.device) -> Int[Tensor, "B N"]:
    """Return the index that reverses each row within its length; it is its own inverse."""
    place = torch.arange(n, device=device)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


def reverse_padded(x: Float[Tensor, "B N C"], order: Int[Tensor, "B N"] | None) -> Float[Tensor, "B N C"]:
    """Reverse every row within its length, by the index of `reverse_index` (None: the whole row)."""
    return x.flip(1) if order is None else x.gather(1, order[..., None].expand_as(x))


@disable_compile
def run_rnn(network: Any, x: Tensor, first: Any = None) -> Tensor:
    """Return all states of an nn.RNNBase, without autocast: in half precision small gradients would vanish."""
    if not x.shape[1]:
        return x.new_zeros(*x.shape[:2], network.hidden_size)
    if torch.compiler.is_exporting() and not torch.onnx.is_in_onnx_export():
        return scan_rnn(network, x, first)
    with torch.autocast(x.device.type, enabled=False):
        states, _ = network(x.to(network.all_weights[0][0].dtype), first)
    return states


def scan_rnn(network: Any, x: Float[Tensor, "B N C"], first: Any = None) -> Float[Tensor, "B N F"]:
    """Return all states of an nn.RNNBase by a loop that a program of torch.export keeps, for any number of steps.

    PyTorch's own network would be unrolled for as many as the example has.
    """
    unit = next(cell for cell in map(cell_class, CELLS) if type(network) is cell.network)
    parts = () if first is None else first if isinstance(first, tuple) else (first,)
    for layer, weights in enumerate(network.all_weights):
        state = tuple(part[layer] for part in parts) or (x.new_zeros(x.shape[0], network.hidden_size),) * unit.parts
        x = _scan_layer(unit, weights, x, state)
    return x


def _scan_layer(unit: type[RNNCellBase], weights: Sequence[Tensor], x: Tensor, state: tuple[Tensor, ...]) -> Tensor:
    from torch._higher_order_ops.scan import scan

    inputs, recurrent, *biases = weights

    def step(state: tuple[Tensor, ...], gates: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        moved = unit.next_state(gates, nn.functional.linear(state[0], recurrent, biases[1]), state)
        return moved, moved[0].clone()

    # neither inputs nor outputs of a step may share memory
    _, states = scan(step, tuple(part.clone() for part in state), nn.functional.linear(x, inputs, biases[0]), dim=1)
    return states


def undecorated(method: Any) -> Callable[..., Any]:
    """Return a method without its `disable_compile`: an exported program cannot go back to Python, so there a loop is
    unrolled for as many steps as the example has."""
    return partial(unwrap(method.__func__), method.__self__)


def step_layers(
    unit: type[RNNCellBase], weights: Sequence[Sequence[Tensor]], x: Float[Tensor, "B K C"], states: States
) -> States:
    """Return the states of stacked layers after one more step, computed with the weights of PyTorch's networks."""
    moved = []
    for (inputs, recurrent, *biases), state in zip(weights, states, strict=True):
        gates = nn.functional.linear(x, inputs, biases[0])
        moved.append(unit.next_state(gates, nn.functional.linear(state[0], recurrent, biases[1]), state))
        x = moved[-1][0]
    return tuple(moved)


def _length_mask(x: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]


# -- decoders ----------------------------------------------------------------------------------------------------------


class StackedRNN(nn.Module):
    """Stacked forward layers: over a whole sequence in one fused call, or one step of every beam."""

    def __init__(self, cell: str, width: int, hidden: int, layers: int = 1, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.unit = cell_class(cell)
        self.network = self.unit.network(
            width, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        init_rnn(self.network)

    def forward(self, x: Float[Tensor, "B T C"], states: States) -> Float[Tensor, "B T F"]:
        """Return the states of the last layer at all steps; `states` are those of one beam of each input."""
        dtype = self.network.all_weights[0][0].dtype  # under autocast too
        parts = [
            torch.cat(part, 1).transpose(0, 1).to(dtype).contiguous() for part in zip(*states, strict=True)
        ]  # L B F
        return run_rnn(self.network, x, parts[0] if len(parts) == 1 else tuple(parts))

    def step(self, x: Float[Tensor, "B K C"], states: States) -> States:
        """Return the states after one more step."""
        return step_layers(self.unit, self.network.all_weights, x, states)


class RNNCellStack(nn.Module):
    """Stacked cells, the first over two inputs: one known beforehand for all steps, one that depends on the state.

    `input_gates` computes the part of its gates that comes from the first, for a whole sequence at once.
    """

    def __init__(
        self, cell: str, input_width: int, width: int, hidden: int, layers: int = 1, dropout: Fraction = 0.0
    ) -> None:
        super().__init__()
        unit = cell_class(cell)
        above = (unit(0, hidden, hidden) for _ in range(layers - 1))
        self.cells = nn.ModuleList([unit(input_width, width, hidden), *above])
        self.drop = nn.Dropout(dropout)  # between layers

    def input_gates(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T gates"]:
        """Return the part of the gates that comes from the known input."""
        first = self.cells[0]
        assert isinstance(first, RNNCellBase)
        assert first.input_gates is not None
        return first.input_gates(x)

    def forward(
        self, input_gates: Float[Tensor, "*B gates"], context_gates: Float[Tensor, "*B C"], states: States
    ) -> States:
        """Return the states after one more step."""
        moved = [self.cells[0](input_gates, context_gates, states[0])]
        for cell, state in zip(self.cells[1:], states[1:], strict=True):
            moved.append(cell(None, self.drop(moved[-1][0]), state))
        return tuple(moved)


class InitialState(nn.Module):
    """The initial states of all layers from a vector: tanh of a linear map."""

    def __init__(self, cell: str, width: int, hidden: int, layers: int = 1) -> None:
        super().__init__()
        self.layers, self.parts = layers, cell_class(cell).parts
        self.map = nn.Linear(width, layers * self.parts * hidden)
        nn.init.xavier_uniform_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, x: Float[Tensor, "B C"]) -> States:
        """Return the states of one beam of every input, in the dtype of the weights under autocast too."""
        made = torch.tanh(self.map(x)).to(self.map.weight.dtype)[:, None]
        parts = made.chunk(self.layers * self.parts, -1)
        return tuple(parts[at : at + self.parts] for at in range(0, len(parts), self.parts))


# -- cells -------------------------------------------------------------------------------------------------------------


class RNNCellBase(nn.Module):
    """A recurrent cell over two inputs: one known beforehand for all steps (of width 0: none), one that depends on the
    state. Equal to PyTorch's cell over the two inputs concatenated."""

    gates: ClassVar[int]
    parts: ClassVar[int] = 1  # tensors of its state
    network: ClassVar[Callable[..., nn.RNNBase]]  # PyTorch's network of such cells

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
        input_gates: Float[Tensor, "*B gates"] | None,
        context_gates: Float[Tensor, "*B C"],
        state: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        inputs = (
            self.context_gates(context_gates)
            if input_gates is None
            else input_gates + self.context_gates(context_gates)
        )
        return self.next_state(inputs, self.state(state[0]), state)

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the next state from the gates' parts that come from the inputs and from the state."""
        raise NotImplementedError


def cell_class(name: str) -> type[RNNCellBase]:
    """Return the cell class of this name."""
    return resolve(CELLS, name, "cell")


class RNNCell(RNNCellBase):
    """A plain recurrent cell."""

    gates, network = 1, nn.RNN

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.tanh(inputs + own),)


class GRUCell(RNNCellBase):
    """A gated recurrent unit."""

    gates, network = 3, nn.GRU

    @staticmethod
    def next_state(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
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
        write, keep, new, show = (inputs + own).chunk(4, -1)
        content = torch.sigmoid(keep) * state[1] + torch.sigmoid(write) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(content), content


_INPUTS, _STATES = nn.init.xavier_uniform_, nn.init.orthogonal_


def init_rnn(network: nn.RNNBase) -> None:
    """Initialise the weights of one of PyTorch's networks."""
    for inputs, states, *biases in network.all_weights:
        gates = inputs.shape[0] // network.hidden_size
        init_gates(inputs, gates, _INPUTS)
        init_gates(states, gates, _STATES)
        for bias in biases:
            nn.init.zeros_(bias)


def init_gates(weight: Tensor, gates: int, fill: Callable[[Tensor], Tensor]) -> None:
    """Initialise each gate by itself: Xavier for inputs, orthogonal for states."""
    with torch.no_grad():
        for gate in weight.chunk(gates):
            fill(gate)
