"""Luong's translator: the decoder moves first and looks afterwards, from the state it has come to.

    tokens      an embedding table for each side (or one for both and the output, tied)
    positions   none: recurrence reads in order
    attention   from the new state, global (dot, bilinear, concat, ...) or local (local_m, local_p)
    head        linear over h~, in which state and context are joined

    s_t = cell([y_{t-1}; h~_{t-1}], s_{t-1})        w_t = align(s_t, memory)        c_t = Σ_m w_{t,m} h_m
    h~_t = tanh(W [c_t; s_t])                       logits_t = V h~_t

Feeding h~ back into the cell ("input feeding") lets it know where it has looked; it is a part, `decoder`:

    fed      as above: one step after the other
    free     s_t = cell(y_{t-1}, s_{t-1}): no state depends on what was looked at, so a whole target is one fused call,
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
from regard.attention.aligners.scored import Scored
from regard.attention.mask import Keys
from regard.attention.protocol import context
from regard.blocks import READERS
from regard.blocks.aligned import Memory, embedding, sampled, tie
from regard.blocks.carried import Carried, State
from regard.blocks.recurrent import Cells, Onward, Start, States, bare
from regard.core.bounds import within
from regard.core.compiler import uncompiled
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Table, make


@dataclass(frozen=True)
class Config:
    """Everything that shapes the model; the defaults are the paper's."""

    vocab: int
    width: int = 1000  # of the embeddings
    hidden: int = 1000  # of the decoder's state, and of the reader's in each direction
    align: int | None = None  # hidden units of an aligner's score that has such; None: as `hidden`
    readout: int | None = None  # width of h~; None: as `hidden`, or where tied as `width`
    layers: int = 4  # of the decoder
    dropout: float = 0.2  # of embeddings, between layers, and of what the head reads
    reader: Any = "lstm(layers=4, directions=1)"  # a spec: rnn, lstm, gru, none; with (layers=..., directions=..., ...)
    cell: str = "lstm"  # of the decoder: rnn, lstm, gru
    aligner: Any = "bilinear"  # a spec, or a module of one's own
    decoder: str = "fed"  # fed, free
    tied: bool = False  # one table for source, target and output
    pad: int = 0
    bos: int = 1
    eos: int = 2


# Base is the paper's; small and tiny are about as large as RNNsearch's.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {
        "width": 256, "hidden": 512, "align": 256, "layers": 1, "dropout": 0.4, "reader": "gru", "cell": "gru",
        "tied": True,
    },
    "tiny": {
        "width": 128, "hidden": 128, "layers": 1, "dropout": 0.2, "reader": "gru", "cell": "gru", "tied": True,
    },
}  # fmt: skip


class Luong(Carried, nn.Module):
    """Source and target tokens in, logits of the next target token out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        within(config)
        self.config = c = config
        self.embed = embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.reader = make(READERS, c.reader, "reader", width=c.width, hidden=c.hidden, dropout=c.dropout)
        memory, first = self.reader.width, self.reader.hidden
        self.decoder = make(DECODERS, c.decoder, "decoder", config=c, memory_width=memory, first_width=first)
        if c.tied:
            tie(self.decoder.head, self.decoder.embed)
            self.embed.weight = self.decoder.embed.weight

    def forward(
        self,
        source: Int[Tensor, "B N"],
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " B"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
        own: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token. Padding of the target stands on the right, after all it could
        disturb. Where `own` is True, what is read is a word drawn from the model's last output, not the target's."""
        state = self.begin(source, source_lengths)
        if own is not None and own.shape[1]:
            return sampled(self.decoder.step, target, state, own)
        logits: Tensor = self.decoder(target, state)
        return logits

    def encode(
        self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B N C"], Bool[Tensor, "B N"] | None, Float[Tensor, "B F"]]:
        """What the decoder looks at, where it may look, and what its first state is made of: the state in which the
        last direction of reading ended."""
        values = self.reader(self.drop(self.embed(source)), source_lengths)
        mask = None if source_lengths is None else Keys(source_lengths).real(source.shape[1])
        return values, mask, self.reader.ends(values, source_lengths)[:, -1]

    # -- writing, one token after another ------------------------------------------------------------------------------

    def begin(self, source: Int[Tensor, "B N"], source_lengths: Int[Tensor, " B"] | None = None) -> State:
        """What is carried before the first token."""
        state: State = self.decoder.begin(*self.encode(source, source_lengths))
        return state

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the next token of every beam."""
        return self.decoder.step(tokens, state)


class After(nn.Module):
    """What both decoders share: they look from the new state and join it with what they saw."""

    def __init__(self, config: Config, memory_width: int, first_width: int) -> None:
        super().__init__()
        c, hidden = config, config.hidden
        self.embed = embedding(c.vocab, c.width, c.pad)
        self.drop = nn.Dropout(c.dropout)
        self.start_from = Start(c.cell, first_width, hidden, c.layers)
        self.aligner = make(
            ALIGNERS, c.aligner, "aligner", query_width=hidden, memory_width=memory_width, width=c.align or hidden
        )
        joined = c.readout or (c.width if c.tied else hidden)
        self.join = nn.Linear(memory_width + hidden, joined, bias=False)  # W
        self.head = nn.Linear(joined, c.vocab, bias=False)
        for part in (self.join, self.head):
            nn.init.xavier_uniform_(part.weight)

    def begin(
        self, values: Float[Tensor, "B M C"], mask: Bool[Tensor, "B M"] | None, first: Float[Tensor, "B S"]
    ) -> State:
        """Before the first token: what every step looks at, and the first states."""
        keys = self.aligner.keys(values)
        return State(Memory(values.to(keys.dtype), keys, mask), self.start_from(first))

    def look(
        self, states: Float[Tensor, "B K F"], memory: Memory, remembered: Any
    ) -> tuple[Float[Tensor, "B K R"], Any]:
        """h~: the state, joined with what is seen from it."""
        weights, remembered = self.aligner(states, memory.keys, memory.mask, remembered)
        seen = context(weights, memory.values)
        return torch.tanh(self.join(torch.cat([seen.to(states.dtype), states], -1))), remembered

    def logits(self, joined: Float[Tensor, "B T R"]) -> Float[Tensor, "B T V"]:
        """A score for every word."""
        logits: Tensor = self.head(self.drop(joined))
        return logits


class Fed(After):
    """Input feeding: what was seen and thought at a step enters the next."""

    def __init__(self, config: Config, memory_width: int, first_width: int) -> None:
        super().__init__(config, memory_width, first_width)
        c = config
        self.cells = Cells(c.cell, c.width, self.join.out_features, c.hidden, c.layers, c.dropout)

    def begin(
        self, values: Float[Tensor, "B M C"], mask: Bool[Tensor, "B M"] | None, first: Float[Tensor, "B S"]
    ) -> State:
        """As above; before the first step nothing was seen."""
        state = super().begin(values, mask, first)
        fed = state.hidden[0][0].new_zeros(values.shape[0], 1, self.join.out_features)
        return State(state.memory, (state.hidden, fed))

    def forward(self, target: Int[Tensor, "B T"], state: State) -> Float[Tensor, "B T V"]:
        """Words and logits for all steps at once, in between one step after the other."""
        read = bare(self.read) if torch.compiler.is_exporting() else self.read
        return self.logits(read(self.cells.known(self.drop(self.embed(target))), state))

    @uncompiled(recursive=False)  # the loop stays in Python: one small graph, compiled once, for every step
    def read(self, known: Float[Tensor, "B T gates"], state: State) -> Float[Tensor, "B T R"]:
        """h~ of a whole target."""
        hidden, remembered, joined = state.hidden, state.remembered, []
        if not known.shape[1]:
            return hidden[1][:, :0]
        for one in known.split(1, dim=1):
            hidden, remembered = self.move(one, hidden, state.memory, remembered)
            joined.append(hidden[1])
        return torch.cat(joined, 1)

    def move(
        self, known: Float[Tensor, "B K gates"], hidden: States, memory: Memory, remembered: Any
    ) -> tuple[States, Any]:
        """One step: move on with the last word and what was thought at it, then look."""
        cells = self.cells(known, hidden[1], hidden[0])
        joined, remembered = self.look(cells[-1][0], memory, remembered)
        return (cells, joined), remembered

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the next token of every beam."""
        known = self.cells.known(self.drop(self.embed(tokens)))
        hidden, remembered = self.move(known, state.hidden, state.memory, state.remembered)
        return self.logits(hidden[1]), state.moved(hidden, remembered)


class Free(After):
    """No feeding: states do not depend on what is seen, so they come first, all at once."""

    def __init__(self, config: Config, memory_width: int, first_width: int) -> None:
        super().__init__(config, memory_width, first_width)
        c = config
        self.network = Onward(c.cell, c.width, c.hidden, c.layers, c.dropout)

    def forward(self, target: Int[Tensor, "B T"], state: State) -> Float[Tensor, "B T V"]:
        """All states in one call, all looks in one product."""
        states = self.network(self.drop(self.embed(target)), state.hidden)
        if isinstance(self.aligner, Scored):  # it remembers nothing: the steps are queries side by side
            return self.logits(self.look(states, state.memory, None)[0])
        look = bare(self.after_one_another) if torch.compiler.is_exporting() else self.after_one_another
        return self.logits(look(states, state))

    @uncompiled(recursive=False)
    def after_one_another(self, states: Float[Tensor, "B T F"], state: State) -> Float[Tensor, "B T R"]:
        """One look after the other, for aligners that remember."""
        joined, remembered = [], state.remembered
        for one in states.split(1, dim=1):
            seen, remembered = self.look(one, state.memory, remembered)
            joined.append(seen)
        return torch.cat(joined, 1)

    def step(self, tokens: Int[Tensor, "B K"], state: State) -> tuple[Float[Tensor, "B K V"], State]:
        """Logits of the next token of every beam."""
        hidden = self.network.step(self.drop(self.embed(tokens)), state.hidden)
        joined, remembered = self.look(hidden[-1][0], state.memory, state.remembered)
        return self.logits(joined), state.moved(hidden, remembered)


DECODERS: Table = {
    "fed": ("regard.models.luong", "Fed"),
    "free": ("regard.models.luong", "Free"),
}
