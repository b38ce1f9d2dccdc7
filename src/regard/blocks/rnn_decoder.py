"""Recurrent decoder with an aligner: before each token it attends from its state to a memory.

    w_t, r_t = align(s_{t-1}, memory, r_{t-1})        c_t = Σ_m w_{t,m} h_m
    s_t      = cell([y_{t-1}; c_t], s_{t-1})          logits_t = V maxout(R [s_t; c_t; y_{t-1}])

The aligner, the cell, the output and the number of layers are parts. Two more come from captions (Xu et al. 2015): with
`context_gate` the context is β_t c_t, β_t = σ(f_β(s_{t-1})) a number, and `output="sum"` is the linear

    logits_t = L_o (y_{t-1} + L_h s_t + L_z c_t)

The weights of every step are published in the pass state ("alignment", B 1 M), for penalties on them. What does not
depend on the state is computed outside the loop: keys once for each input, the tokens' part of the gates and the whole
output once for each target. With several layers, the top one attends and the bottom one reads the context. The beams of
an input are queries of one memory.

With `sampling_mask`, training is by scheduled sampling: where it is True, the decoder reads a token sampled from its
own last output instead of the target's (Bengio, Vinyals, Jaitly, Shazeer 2015, arXiv:1506.03099).

Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015. arXiv:1409.0473
Xu et al.: Show, Attend and Tell. ICML 2015. arXiv:1502.03044
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention import ALIGNERS
from regard.attention.aligners.base import align
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import context
from regard.blocks.decoder_state import DecoderState
from regard.blocks.rnn import InitialState, RNNCellStack, States, undecorated
from regard.core.categorical import sample_categorical
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState, PassState
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoded input; its beams share it."""

    values: Float[Tensor, "B M C"]
    keys: Float[Tensor, "B M A"]
    mask: Bool[Tensor, "B M"] | None

    def select_rows(self, rows: Int[Tensor, " R"]) -> Memory:
        return Memory(self.values[rows], self.keys[rows], None if self.mask is None else self.mask[rows])


# -- the decoder -------------------------------------------------------------------------------------------------------


class RNNDecoder(nn.Module):
    """Map a memory and target tokens to logits of the next token.

    `width` is that of the embeddings, `hidden` of the cells, `align_width` of the aligner's score (None: as `hidden`),
    `readout` counts the maxout units before the head (None: as `width`; the sum has `width` units), and `init_width` is
    that of the vector of which the initial state is made (None: as `memory_width`).
    """

    def __init__(
        self,
        vocab: int,
        width: int,
        hidden: int,
        memory_width: int,
        aligner: Any = "additive",
        cell: str = "gru",
        layers: int = 1,
        align_width: int | None = None,
        readout: int | None = None,
        dropout: float = 0.0,
        init_width: int | None = None,
        tied: bool = False,
        pad: int = 0,
        output: str = "maxout",
        context_gate: bool = False,
    ) -> None:
        super().__init__()
        self.embed = make_embedding(vocab, width, pad)
        self.start_from = InitialState(cell, memory_width if init_width is None else init_width, hidden, layers)
        self.aligner = build_part(
            ALIGNERS, aligner, "aligner", query_width=hidden, memory_width=memory_width, width=align_width or hidden
        )
        self.cells = RNNCellStack(cell, width, memory_width, hidden, layers, dropout)
        self.context_gate = nn.Linear(hidden, 1) if context_gate else None  # f_β
        sizes = (hidden, memory_width, width)
        self.output = build_part(OUTPUTS, output, "output", sizes=sizes, readout=readout, vocab=vocab, dropout=dropout)
        self.drop = nn.Dropout(dropout)
        if tied:
            self.output.tie_weights(self.embed)

    def initial_state(
        self, values: Float[Tensor, "B M C"], mask: Bool[Tensor, "B M"] | None, first: Float[Tensor, "B S"]
    ) -> DecoderState:
        """Return the state before the first token: the memory and the initial states."""
        keys = self.aligner.keys(values)
        # under autocast: cast once what every step reads
        return DecoderState(Memory(values.to(keys.dtype), keys, mask), self.start_from(first))

    def forward(
        self,
        target: Int[Tensor, "B T"],
        state: DecoderState,
        sampling_mask: Bool[Tensor, "B T"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right."""
        if sampling_mask is not None and sampling_mask.shape[1]:
            return scheduled_sampling(self.step, target, state, sampling_mask)
        words = self.drop(self.embed(target))
        read = undecorated(self.unroll) if torch.compiler.is_exporting() else self.unroll
        states, contexts = read(self.cells.input_gates(words), state, pass_state)
        return self.output(states, contexts, words)

    @disable_compile(recursive=False)  # the loop stays in Python: one small graph, compiled once, for every step
    def unroll(
        self, input_gates: Float[Tensor, "B T gates"], state: DecoderState, pass_state: PassState | None = None
    ) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B T C"]]:
        """Return the states and contexts of a whole target, one after the other; step t is layer t of the pass."""
        pass_state = PassState() if pass_state is None else pass_state
        hidden, aligner_state, states, contexts = state.hidden, state.aligner_state, [], []
        if not input_gates.shape[1]:
            return hidden[-1][0][:, :0], state.memory.values[:, :0]
        # split, since the gradient of input_gates[:, t] would be a whole B T tensor at each step
        for t, one in enumerate(input_gates.split(1, dim=1)):
            layer_state = pass_state.layer(t)
            hidden, seen, weights, aligner_state = self.attend(one, hidden, state.memory, aligner_state, layer_state)
            layer_state.publish("alignment", weights)
            states.append(hidden[-1][0])
            contexts.append(seen)
        return torch.cat(states, 1), torch.cat(contexts, 1)

    def attend(
        self,
        input_gates: Float[Tensor, "B K gates"],
        hidden: States,
        memory: Memory,
        aligner_state: Any,
        layer_state: LayerState | None = None,
    ) -> tuple[States, Float[Tensor, "B K C"], Float[Tensor, "B K M"], Any]:
        """Do one step: attend from the state so far, then advance the cells with the context and the last word.

        Return the states, the context, the weights over the memory, and the state of the aligner.
        """
        weights, aligner_state = align(
            self.aligner, hidden[-1][0], memory.keys, memory.mask, aligner_state, layer_state
        )
        seen = context(weights, memory.values)
        if self.context_gate is not None:
            seen = torch.sigmoid(self.context_gate(hidden[-1][0])) * seen
        return self.cells(input_gates, seen, hidden), seen, weights, aligner_state

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Return the logits of the next token of every beam."""
        words = self.drop(self.embed(tokens))
        hidden, seen, _, aligner_state = self.attend(
            self.cells.input_gates(words), state.hidden, state.memory, state.aligner_state
        )
        return self.output(hidden[-1][0], seen, words), state.updated(hidden, aligner_state)


class DeepOutput(nn.Module):
    """Maxout over pairs of units, then a linear head. `sizes` are the widths of the inputs, the last token's last."""

    def __init__(self, sizes: Sequence[int], readout: int | None, vocab: int, dropout: float = 0.0) -> None:
        super().__init__()
        readout = readout or sizes[-1]
        self.readout = nn.Linear(sum(sizes), 2 * readout)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(readout, vocab, bias=False)
        for part in (self.readout, self.head):
            nn.init.xavier_uniform_(part.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, *inputs: Float[Tensor, "B T _"]) -> Float[Tensor, "B T V"]:
        """Return logits from the state, the context and the last token, concatenated."""
        pairs = self.readout(torch.cat(inputs, -1)).unflatten(-1, (-1, 2))
        logits: Tensor = self.head(self.drop(pairs.amax(-1)))
        return logits

    def tie_weights(self, table: nn.Embedding) -> None:
        """Share the matrix of the head with an embedding."""
        tie_weights(self.head, table)


class SumOutput(nn.Module):
    """The last token's embedding plus linear maps of the other inputs, then a linear head: L_o (y + L_h s + L_z c)."""

    def __init__(self, sizes: Sequence[int], readout: int | None, vocab: int, dropout: float = 0.0) -> None:
        super().__init__()
        width = sizes[-1]
        if readout not in (None, width):
            raise RegardError(f"output='sum' adds to embeddings of width {width}; leave readout=None, got {readout}")
        self.maps = nn.ModuleList(nn.Linear(size, width, bias=False) for size in sizes[:-1])
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocab)
        for part in (*self.maps, self.head):
            nn.init.xavier_uniform_(part.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, *inputs: Float[Tensor, "B T _"]) -> Float[Tensor, "B T V"]:
        """Return logits from the state, the context and the last token."""
        mapped = [part(x) for part, x in zip(self.maps, inputs[:-1], strict=True)]
        logits: Tensor = self.head(self.drop(sum(mapped, inputs[-1])))
        return logits

    def tie_weights(self, table: nn.Embedding) -> None:
        """Share the matrix of the head with an embedding."""
        tie_weights(self.head, table)


OUTPUTS: Registry = {
    "maxout": ("regard.blocks.rnn_decoder", "DeepOutput"),
    "sum": ("regard.blocks.rnn_decoder", "SumOutput"),
}


def tie_weights(head: nn.Linear, table: nn.Embedding) -> None:
    """Share the matrix of a head with an embedding."""
    if head.in_features != table.embedding_dim:
        sizes = f"{head.in_features} and {table.embedding_dim}"
        raise RegardError(f"a tied head needs readout and width to be equal, got {sizes}; set readout=None")
    head.weight = table.weight


def make_embedding(vocab: int, width: int, pad: int) -> nn.Embedding:
    """Return an embedding whose initial weights give nearly uniform logits if it is the head too."""
    made = nn.Embedding(vocab, width, padding_idx=pad)
    nn.init.normal_(made.weight, std=width**-0.5)
    with torch.no_grad():
        made.weight[pad].zero_()
    return made


# -- scheduled sampling ------------------------------------------------------------------------------------------------


@disable_compile(recursive=False)
def scheduled_sampling(
    step: Callable[[Tensor, Any], tuple[Tensor, Any]],
    target: Int[Tensor, "B T"],
    state: Any,
    sampling_mask: Bool[Tensor, "B T"],
) -> Float[Tensor, "B T V"]:
    """Return the logits of a target read step by step; where `sampling_mask`, the token is sampled from the last
    output.

    The first token is always the target's. No gradient flows through samples; they use the device's random stream, as
    dropout does.
    """
    logits: list[Tensor] = []
    for read, replaced in zip(target.split(1, dim=1), sampling_mask.split(1, dim=1), strict=True):
        tokens = (
            read
            if not logits
            else torch.where(replaced, sample_categorical(upcast(logits[-1].detach()).softmax(-1)), read)
        )
        found, state = step(tokens, state)
        logits.append(found)
    return torch.cat(logits, 1)
