"""Luong's translator: the decoder moves first and looks afterwards, from the state it has come to.

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   none: recurrence reads in order
    attention   from the new state, global (dot, bilinear, concat, ...) or local (local_monotonic, local_predictive)
    head        linear over h~, in which state and context are joined

    s_t = cell([y_{t-1}; h~_{t-1}], s_{t-1})        w_t = align(s_t, memory)        c_t = Σ_m w_{t,m} h_m
    h~_t = tanh(W [c_t; s_t])                       logits_t = V h~_t

Feeding h~ back into the cell ("input feeding") lets it know where it has looked; it is a part, `decoder`:

    input_feeding      as above: one step after the other
    no_input_feeding   s_t = cell(y_{t-1}, s_{t-1}): no state depends on what was looked at, so a whole target is one fused call,
             and all its steps look in one product (an aligner that remembers still looks one step after the other)

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025.
There, each layer of the decoder begins with the state in which that of the encoder ended; here, with a learned map of
the last one's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention import ALIGNERS
from regard.attention.aligners.base import StatelessAligner
from regard.attention.mask import PaddingMask
from regard.attention.protocol import context
from regard.blocks import RNN_ENCODERS
from regard.blocks.decoder_state import CapturableDecodable, DecoderState
from regard.blocks.rnn import InitialState, RNNCellStack, StackedRNN, States, undecorated
from regard.blocks.rnn_decoder import Memory, make_embedding, scheduled_sampling, tie_weights
from regard.core.config import field
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Registry, build_part
from regard.core.validation import validate


@dataclass(frozen=True)
class Config:
    """Everything that shapes the model; the defaults are the paper's."""

    vocab: int
    width: int = 1000  # of the embeddings
    hidden: int = 1000  # of the decoder's state, and of the reader's in each direction
    align_width: int | None = None  # hidden units of an aligner's score that has such; None: as `hidden`
    readout: int | None = None  # width of h~; None: as `hidden`, or where tied as `width`
    layers: int = 4  # of the decoder
    dropout: float = field(0.2, low=0, below=1)  # of embeddings, between layers, and of what the head reads
    encoder: Any = (
        "lstm(layers=4, directions=1)"  # a spec: rnn, lstm, gru, none; with (layers=..., directions=..., ...)
    )
    cell: str = "lstm"  # of the decoder: rnn, lstm, gru
    aligner: Any = "bilinear"  # a spec, or a module of one's own
    decoder: str = "input_feeding"  # input_feeding, no_input_feeding
    tied: bool = False  # one table for source, target and output
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


class Luong(CapturableDecodable, nn.Module):
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
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token. Padding of the target stands on the right, after all it could
        disturb. Where `sampling_mask` is True, what is read is a word drawn from the model's last output, not the target's."""
        state = self.initial_state(source, source_lengths)
        if sampling_mask is not None and sampling_mask.shape[1]:
            return scheduled_sampling(self.decoder.step, target, state, sampling_mask)
        logits: Tensor = self.decoder(target, state)
        return logits

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N C"], Bool[Tensor, "B N"] | None, Float[Tensor, "B F"]]:
        """What the decoder looks at, where it may look, and what its first state is made of: the state in which the
        last direction of reading ended."""
        values = self.encoder(self.drop(self.embed(source)), source_lengths)
        mask = None if source_lengths is None else PaddingMask(source_lengths).real(source.shape[1])
        return values, mask, self.encoder.final_states(values, source_lengths)[:, -1]

    # -- writing, one token after another ------------------------------------------------------------------------------

    def initial_state(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> DecoderState:
        """What is carried before the first token."""
        state: DecoderState = self.decoder.initial_state(*self.encode(source, source_lengths))
        return state

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Logits of the next token of every beam."""
        return self.decoder.step(tokens, state)


class LuongDecoder(nn.Module):
    """What both decoders share: they look from the new state and join it with what they saw."""

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
        """Before the first token: what every step looks at, and the first states."""
        keys = self.aligner.keys(values)
        return DecoderState(Memory(values.to(keys.dtype), keys, mask), self.start_from(first))

    def attend(
        self, states: Float[Tensor, "B K F"], memory: Memory, aligner_state: Any
    ) -> tuple[Float[Tensor, "B K R"], Any]:
        """h~: the state, joined with what is seen from it."""
        weights, aligner_state = self.aligner(states, memory.keys, memory.mask, aligner_state)
        seen = context(weights, memory.values)
        return torch.tanh(self.join(torch.cat([seen.to(states.dtype), states], -1))), aligner_state

    def logits(self, joined: Float[Tensor, "B T R"]) -> Float[Tensor, "B T V"]:
        """A score for every word."""
        logits: Tensor = self.head(self.drop(joined))
        return logits


class InputFeeding(LuongDecoder):
    """Input feeding: what was seen and thought at a step enters the next."""

    def __init__(self, config: Config, memory_width: int, init_width: int) -> None:
        super().__init__(config, memory_width, init_width)
        c = config
        self.cells = RNNCellStack(c.cell, c.width, self.join.out_features, c.hidden, c.layers, c.dropout)

    def initial_state(
        self, values: Float[Tensor, "B M C"], mask: Bool[Tensor, "B M"] | None, first: Float[Tensor, "B S"]
    ) -> DecoderState:
        """As above; before the first step nothing was seen."""
        state = super().initial_state(values, mask, first)
        fed = state.hidden[0][0].new_zeros(values.shape[0], 1, self.join.out_features)
        return DecoderState(state.memory, (state.hidden, fed))

    def forward(self, target: Int[Tensor, "B T"], state: DecoderState) -> Float[Tensor, "B T V"]:
        """Words and logits for all steps at once, in between one step after the other."""
        read = undecorated(self.unroll) if torch.compiler.is_exporting() else self.unroll
        return self.logits(read(self.cells.input_gates(self.drop(self.embed(target))), state))

    @disable_compile(recursive=False)  # the loop stays in Python: one small graph, compiled once, for every step
    def unroll(self, input_gates: Float[Tensor, "B T gates"], state: DecoderState) -> Float[Tensor, "B T R"]:
        """h~ of a whole target."""
        hidden, aligner_state, joined = state.hidden, state.aligner_state, []
        if not input_gates.shape[1]:
            return hidden[1][:, :0]
        for one in input_gates.split(1, dim=1):
            hidden, aligner_state = self.advance(one, hidden, state.memory, aligner_state)
            joined.append(hidden[1])
        return torch.cat(joined, 1)

    def advance(
        self, input_gates: Float[Tensor, "B K gates"], hidden: States, memory: Memory, aligner_state: Any
    ) -> tuple[States, Any]:
        """One step: move on with the last word and what was thought at it, then look."""
        cells = self.cells(input_gates, hidden[1], hidden[0])
        joined, aligner_state = self.attend(cells[-1][0], memory, aligner_state)
        return (cells, joined), aligner_state

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Logits of the next token of every beam."""
        input_gates = self.cells.input_gates(self.drop(self.embed(tokens)))
        hidden, aligner_state = self.advance(input_gates, state.hidden, state.memory, state.aligner_state)
        return self.logits(hidden[1]), state.updated(hidden, aligner_state)


class NoInputFeeding(LuongDecoder):
    """No feeding: states do not depend on what is seen, so they come first, all at once."""

    def __init__(self, config: Config, memory_width: int, init_width: int) -> None:
        super().__init__(config, memory_width, init_width)
        c = config
        self.network = StackedRNN(c.cell, c.width, c.hidden, c.layers, c.dropout)

    def forward(self, target: Int[Tensor, "B T"], state: DecoderState) -> Float[Tensor, "B T V"]:
        """All states in one call, all looks in one product."""
        states = self.network(self.drop(self.embed(target)), state.hidden)
        if isinstance(self.aligner, StatelessAligner):  # it remembers nothing: the steps are queries side by side
            return self.logits(self.attend(states, state.memory, None)[0])
        look = undecorated(self.attend_step_by_step) if torch.compiler.is_exporting() else self.attend_step_by_step
        return self.logits(look(states, state))

    @disable_compile(recursive=False)
    def attend_step_by_step(self, states: Float[Tensor, "B T F"], state: DecoderState) -> Float[Tensor, "B T R"]:
        """One look after the other, for aligners that remember."""
        joined, aligner_state = [], state.aligner_state
        for one in states.split(1, dim=1):
            seen, aligner_state = self.attend(one, state.memory, aligner_state)
            joined.append(seen)
        return torch.cat(joined, 1)

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Logits of the next token of every beam."""
        hidden = self.network.step(self.drop(self.embed(tokens)), state.hidden)
        joined, aligner_state = self.attend(hidden[-1][0], state.memory, state.aligner_state)
        return self.logits(joined), state.updated(hidden, aligner_state)


DECODERS: Registry = {
    "input_feeding": ("regard.models.luong", "InputFeeding"),
    "no_input_feeding": ("regard.models.luong", "NoInputFeeding"),
}
