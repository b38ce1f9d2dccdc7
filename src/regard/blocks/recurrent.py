"""Recurrence: reading a padded batch in both directions, and a gated cell whose input comes in two parts.

    r, z = σ(x + U s)        n = tanh(x + r ∘ U s)        s' = (1 - z) ∘ n + z ∘ s

(each gate with rows of its own). The units are PyTorch's: the reset gate r acts on the product U s and not on s itself.

Cho et al.: Learning Phrase Representations using RNN Encoder-Decoder. EMNLP 2014. arXiv:1406.1078
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from regard.core.shapes import Float, Int, Tensor


class Bidirectional(nn.Module):
    """A gated recurrent network that reads each sequence once forwards and once backwards.

    The way back runs forwards over sequences that were turned round within their own lengths. So it begins at the last
    real token, padding changes nothing, and no length has to leave the device, as it would for packed sequences.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.forth = nn.GRU(width, hidden, batch_first=True)
        self.back = nn.GRU(width, hidden, batch_first=True)
        for part in (self.forth, self.back):
            inputs, states, *biases = part.all_weights[0]
            start_gates(inputs, states)
            for bias in biases:
                nn.init.zeros_(bias)

    def forward(self, x: Float[Tensor, "B N C"], lengths: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B N both"]:
        """The states of both directions side by side, forwards first; padding gives zeros."""
        forth = run(self.forth, x)
        if lengths is None:
            return torch.cat([forth, run(self.back, x.flip(1)).flip(1)], -1)
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]  # B N
        turn = turned(x.shape[1], lengths, x.device)[..., None]
        back = run(self.back, x.gather(1, turn.expand_as(x)))
        return torch.cat([forth, back.gather(1, turn.expand_as(back))], -1) * real[..., None]


def turned(n: int, lengths: Int[Tensor, " B"], device: torch.device) -> Int[Tensor, "B N"]:
    """For each place the one it changes with when a row is turned round within its length; its own inverse."""
    place = torch.arange(n, device=device)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


@torch.compiler.disable
def run(network: nn.RNNBase, x: Tensor) -> Tensor:
    """All states of a network. Not under autocast, which runs it in half precision, where small gradients vanish."""
    with torch.autocast(x.device.type, enabled=False):
        states, _ = network(x.to(network.all_weights[0][0].dtype))
    return states


class Cell(nn.Module):
    """A gated recurrent cell over two inputs: one known for all times beforehand, one that depends on the state.

    `known(x)` is that part of the gates which can be taken for a whole sequence at once; `forward` is what is left for
    each step. Equal to `nn.GRUCell` over the two inputs side by side.
    """

    def __init__(self, known_width: int, width: int, hidden: int) -> None:
        super().__init__()
        self.known = nn.Linear(known_width, 3 * hidden)
        self.given = nn.Linear(width, 3 * hidden, bias=False)
        self.state = nn.Linear(hidden, 3 * hidden)
        start_gates(self.known.weight, self.state.weight)
        start_gates(self.given.weight)
        nn.init.zeros_(self.known.bias)
        nn.init.zeros_(self.state.bias)

    def forward(
        self, known: Float[Tensor, "B K gates"], given: Float[Tensor, "B K C"], state: Float[Tensor, "B K F"]
    ) -> Float[Tensor, "B K F"]:
        """The next state."""
        width = state.shape[-1]
        sizes = [2 * width, width]
        input_gates, input_new = (known + self.given(given)).split(sizes, -1)
        state_gates, state_new = self.state(state).split(sizes, -1)
        reset, keep = torch.sigmoid(input_gates + state_gates).chunk(2, -1)
        new = torch.tanh(torch.addcmul(input_new, reset, state_new))
        return new + keep * (state - new)


def start_gates(inputs: Tensor, states: Tensor | None = None) -> None:
    """Fresh gates, each by itself: Xavier for what comes from the input, orthogonal for what comes from the state."""
    _each_gate(inputs, nn.init.xavier_uniform_)
    if states is not None:
        _each_gate(states, nn.init.orthogonal_)


def _each_gate(weight: Tensor, fill: Callable[[Tensor], Tensor]) -> None:
    with torch.no_grad():
        for gate in weight.chunk(3):
            fill(gate)
