"""Luong attention: the decoder attends from its new state, after the recurrent step.

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   none: recurrence reads in order
    attention   from the new state, global (dot, bilinear, concat, ...) or local (local_monotonic, local_predictive)
    head        linear over h~, which combines state and context

    s_t = cell([y_{t-1}; h~_{t-1}], s_{t-1})        w_t = align(s_t, memory)        c_t = Σ_m w_{t,m} h_m
    h~_t = tanh(W [c_t; s_t])                       logits_t = V h~_t

Feeding h~ back into the cell ("input feeding") informs it of past alignments; the part `decoder` decides:

    input_feeding      as above, step by step
    no_input_feeding   s_t = cell(y_{t-1}, s_{t-1}): states do not depend on attention, so a whole target is one fused
                       call, and all its steps attend in one product (an aligner with a state attends step by step)

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025.
There, the initial state of each decoder layer is the final state of that encoder layer; here, a learned map of the
last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention import ALIGNERS
from regard.attention.aligners.base import StatelessAligner, align
from regard.attention.mask import PaddingMask
from regard.attention.protocol import context
from regard.blocks import RNN_ENCODERS
from regard.blocks.decoder_state import CapturableDecodable, DecoderState
from regard.blocks.rnn import InitialState, RNNCellStack, StackedRNN, States, undecorated
from regard.blocks.rnn_decoder import Memory, make_embedding, scheduled_sampling, tie_weights
from regard.core.config import field
from regard.core.layer_state import LayerState, PassState
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract


@dataclass(frozen=True)
class Config:
    """Hyperparameters of the model; the defaults are the paper's."""

    vocab: int
    width: int = 1000  # of the embeddings
    hidden: int = 1000  # units of the decoder, and of the encoder in each direction
    align_width: int | None = None  # hidden units of the aligner's score; None: `hidden`
    readout: int | None = None  # width of h~; None: `hidden`, or `width` if tied
    layers: int = 4  # of the decoder
    dropout: float = field(0.2, low=0, below=1)  # of embeddings, between layers, and before the head
    encoder: Any = (
        "lstm(layers=4, directions=1)"  # a spec: rnn, lstm, gru, none; with (layers=..., directions=..., ...)
    )
    cell: str = "lstm"  # of the decoder: rnn, lstm, gru
    aligner: Any = "bilinear"  # a spec, or a module
    decoder: str = "input_feeding"  # input_feeding, no_input_feeding
    tied: bool = False  # one embedding table for source, target and output
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base is the paper's; small and tiny are about as large as RNNsearch's.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {
        "width": 256, "hidden": 512, "align_width": 256, "layers": 1, "dropout": 0.4, "encoder": "gru", "cell": "gru",
        "tied": True,
    },
    "tiny": {
        "width": 128, "hidden": 128, "layers": 1, "dropout": 0.2, "encoder": "gru", "cell": "gru", "tied": True,
    },
}  # fmt: skip


class Luong(CapturableDecodable, ModelContract):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.embed = make_embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.encoder = build_part(RNN_ENCODERS, c.encoder, "encoder", width=c.width, hidden=c.hidden, dropout=c.dropout)
        memory, first = self.encoder.width, self.encoder.hidden
        self.decoder = build_part(DECODERS, c.decoder, "decoder", config=c, memory_width=memory, init_width=first)
        if c.tied:
            tie_weights(self.decoder.head, self.decoder.embed)
            self.embed.weight = self.decoder.embed.weight

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        sampling_mask: Bool[Tensor, "B T"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right.

        Where `sampling_mask` is True, the decoder reads a sample of its last output instead of the target token.
        """
        state = self.initial_state(source, source_lengths)
        if sampling_mask is not None and sampling_mask.shape[1]:
            return scheduled_sampling(self.decoder.step, target, state, sampling_mask)
        logits: Tensor = self.decoder(target, state, pass_state)
        return logits

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N C"], Bool[Tensor, "B N"] | None, Float[Tensor, "B F"]]:
        """Return the memory, which of it is real, and the vector for the first state: the encoder's final state."""
        values = self.encoder(self.drop(self.embed(source)), source_lengths)
        mask = None if source_lengths is None else PaddingMask(source_lengths).real(source.shape[1])
        return values, mask, self.encoder.final_states(values, source_lengths)[:, -1]

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """Return the decoder state before the first token."""
        state: DecoderState = self.decoder.initial_state(*self.encode(source, source_lengths))
        return state

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        return self.decoder.step(tokens, state)


class LuongDecoder(nn.Module):
    """Base of both decoders: attend from the new state and combine it with the context."""

    def __init__(self, config: Config, memory_width: int, init_width: int) -> None:
        super().__init__()
        c, hidden = config, config.hidden
        self.embed = make_embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.start_from = InitialState(c.cell, init_width, hidden, c.layers)
        self.aligner = build_part(
            ALIGNERS, c.aligner, "aligner", query_width=hidden, memory_width=memory_width, width=c.align_width or hidden
        )
        joined = c.readout or (c.width if c.tied else hidden)
        self.join = nn.Linear(memory_width + hidden, joined, bias=False)  # W
        self.head = nn.Linear(joined, c.vocab, bias=False)
        for part in (self.join, self.head):
            nn.init.xavier_uniform_(part.weight)

    def initial_state(
        self, values: Float[Tensor, "B M C"], mask: Bool[Tensor, "B M"] | None, first: Float[Tensor, "B S"]
    ) -> DecoderState:
        """Return the memory, its keys, and the first states."""
        keys = self.aligner.keys(values)
        return DecoderState(Memory(values.to(keys.dtype), keys, mask), self.start_from(first))

    def attend(
        self,
        states: Float[Tensor, "B K F"],
        memory: Memory,
        aligner_state: Any,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B K R"], Any]:
        """Return h~ of a state."""
        weights, aligner_state = align(self.aligner, states, memory.keys, memory.mask, aligner_state, layer_state)
        seen = context(weights, memory.values)
        return torch.tanh(self.join(torch.cat([seen.to(states.dtype), states], -1))), aligner_state

    def logits(self, joined: Float[Tensor, "B T R"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the next token."""
        logits: Tensor = self.head(self.drop(joined))
        return logits


class InputFeeding(LuongDecoder):
    """Input feeding: h~ of a step is an input of the next."""

    def __init__(self, config: Config, memory_width: int, init_width: int) -> None:
        super().__init__(config, memory_width, init_width)
        c = config
        self.cells = RNNCellStack(c.cell, c.width, self.join.out_features, c.hidden, c.layers, c.dropout)

    def initial_state(
        self, values: Float[Tensor, "B M C"], mask: Bool[Tensor, "B M"] | None, first: Float[Tensor, "B S"]
    ) -> DecoderState:
        """Return the base's state with h~ = 0."""
        state = super().initial_state(values, mask, first)
        fed = state.hidden[0][0].new_zeros(values.shape[0], 1, self.join.out_features)
        return DecoderState(state.memory, (state.hidden, fed))

    def forward(
        self, target: Int[Tensor, "B T"], state: DecoderState, pass_state: PassState | None = None
    ) -> Float[Tensor, "B T V"]:
        """Embed all tokens and compute all logits in one call; the steps between are a loop."""
        read = undecorated(self.unroll) if torch.compiler.is_exporting() else self.unroll
        return self.logits(read(self.cells.input_gates(self.drop(self.embed(target))), state, pass_state))

    @disable_compile(recursive=False)  # the loop stays in Python; its step is compiled once
    def unroll(
        self, input_gates: Float[Tensor, "B T gates"], state: DecoderState, pass_state: PassState | None = None
    ) -> Float[Tensor, "B T R"]:
        """Return h~ of a whole target."""
        hidden, aligner_state, joined = state.hidden, state.aligner_state, []
        pass_state = PassState() if pass_state is None else pass_state
        if not input_gates.shape[1]:
            return hidden[1][:, :0]
        for t, one in enumerate(input_gates.split(1, dim=1)):
            hidden, aligner_state = self.advance(one, hidden, state.memory, aligner_state, pass_state.layer(t))
            joined.append(hidden[1])
        return torch.cat(joined, 1)

    def advance(
        self,
        input_gates: Float[Tensor, "B K gates"],
        hidden: States,
        memory: Memory,
        aligner_state: Any,
        layer_state: LayerState | None = None,
    ) -> tuple[States, Any]:
        """Run the cell on the last token and h~, then attend."""
        cells = self.cells(input_gates, hidden[1], hidden[0])
        joined, aligner_state = self.attend(cells[-1][0], memory, aligner_state, layer_state)
        return (cells, joined), aligner_state

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        input_gates = self.cells.input_gates(self.drop(self.embed(tokens)))
        hidden, aligner_state = self.advance(input_gates, state.hidden, state.memory, state.aligner_state)
        return self.logits(hidden[1]), state.updated(hidden, aligner_state)


class NoInputFeeding(LuongDecoder):
    """No input feeding: all states are computed first, in one call."""

    def __init__(self, config: Config, memory_width: int, init_width: int) -> None:
        super().__init__(config, memory_width, init_width)
        c = config
        self.network = StackedRNN(c.cell, c.width, c.hidden, c.layers, c.dropout)

    def forward(
        self, target: Int[Tensor, "B T"], state: DecoderState, pass_state: PassState | None = None
    ) -> Float[Tensor, "B T V"]:
        states = self.network(self.drop(self.embed(target)), state.hidden)
        if isinstance(self.aligner, StatelessAligner):  # the steps are parallel queries
            return self.logits(self.attend(states, state.memory, None)[0])
        attend = undecorated(self.attend_step_by_step) if torch.compiler.is_exporting() else self.attend_step_by_step
        return self.logits(attend(states, state, pass_state))

    @disable_compile(recursive=False)
    def attend_step_by_step(
        self, states: Float[Tensor, "B T F"], state: DecoderState, pass_state: PassState | None = None
    ) -> Float[Tensor, "B T R"]:
        """Attend one step after another, for aligners with a state."""
        joined, aligner_state = [], state.aligner_state
        pass_state = PassState() if pass_state is None else pass_state
        for t, one in enumerate(states.split(1, dim=1)):
            seen, aligner_state = self.attend(one, state.memory, aligner_state, pass_state.layer(t))
            joined.append(seen)
        return torch.cat(joined, 1)

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        hidden = self.network.step(self.drop(self.embed(tokens)), state.hidden)
        joined, aligner_state = self.attend(hidden[-1][0], state.memory, state.aligner_state)
        return self.logits(joined), state.updated(hidden, aligner_state)


DECODERS: Registry = {
    "input_feeding": ("regard.models.luong", "InputFeeding"),
    "no_input_feeding": ("regard.models.luong", "NoInputFeeding"),
}
