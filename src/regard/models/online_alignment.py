"""Online: reads one input after another and decides at each whether to write a token now or to read on.

    tokens      an embedding table for each side, or frames of numbers as source (`inputs`, `stack` of them at a time)
    positions   none: recurrence in the order of reading
    attention   hard and online: a Bernoulli unit at each place; what was written there saw nothing that comes later
    head        linear, on the state

    s_i = cell(h_i, y_last, b_{i-1}; s_{i-1})        b_i ~ Bernoulli(σ(u · s_i))        b_i = 1: y_t ~ softmax(W s_i)

h_i is what a network that only goes forwards has heard up to place i. At most one token is written at a place. When all
is read, what is left to be said is written one token after another, up to the end token. The choices b have no
derivative: they are taught by the log-likelihood of the tokens written from then on (tasks/reinforce.py). In training
they are drawn, in eval mode a token is written where that is the likelier choice.

Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016. arXiv:1608.01281
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from regard.blocks import CELLS, RNN_ENCODERS
from regard.blocks.decoder_state import DecoderState, StatefulDecodable, tree_map
from regard.blocks.emitter import Emitter, EmitterMemory
from regard.blocks.rnn import RNNCellStack, States, undecorated
from regard.blocks.rnn_decoder import make_embedding
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part, resolve
from regard.core.validation import validate
from regard.models.ctc import AcousticEncoder


@dataclass(frozen=True)
class Config:
    """Everything that shapes an online model."""

    vocab: int
    width: int = 256  # of the embeddings
    hidden: int = 256  # of the states
    layers: int = 2  # of the network that hears, below the cell that decides
    cell: str = "lstm"  # of both: rnn, lstm, gru
    # log-odds of writing at a place before anything is learned: the lower, the more is heard first
    emission_bias: float = field(0.0, low=-30, high=30)
    dropout: float = field(0.0, low=0, below=1)  # of embeddings, between layers, and of what the head reads
    input_dim: int | None = None  # numbers in a frame, where the source is frames and not tokens
    frame_stack: int = 1  # so many frames are heard at a time
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Of our own choice: small for some hundred thousand words or a few hours of speech, tiny for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"dropout": 0.2},
    "tiny": {"width": 64, "hidden": 128, "layers": 1, "dropout": 0.1},
}


class OnlineAlignment(StatefulDecodable, nn.Module):
    """A source and target tokens in, logits of the next target token out, each from where it would be written."""

    encodes_source_once = (
        True  # a source may have several targets, which stand together: it is heard once, and read for each
    )

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        if c.frame_stack > 1 and c.input_dim is None:
            raise RegardError(
                "frame_stack is for frames: set input_dim, or read tokens one at a time with frame_stack=1"
            )
        self.embed = make_embedding(c.vocab, c.width, c.pad) if c.input_dim is None else None
        forwards = f"{c.cell}(directions=1)"
        if c.input_dim is None:
            self.token_encoder = build_part(
                RNN_ENCODERS, forwards, "encoder", width=c.width, hidden=c.hidden, layers=c.layers, dropout=c.dropout
            )
        else:  # as CTC's, so that it may begin with what was learned by CTC
            self.encoder = AcousticEncoder(
                c.input_dim, 0, c.width, c.hidden, c.layers, forwards, c.dropout, c.frame_stack
            )
        self.end_of_source = nn.Parameter(torch.zeros(c.hidden))  # heard when there is nothing more to read
        self.embed_target = make_embedding(c.vocab, c.width, c.pad)
        self.cells = RNNCellStack(c.cell, c.hidden, c.width + 1, c.hidden)
        self.emitter = Emitter(c.hidden, c.emission_bias)
        self.head = nn.Linear(c.hidden, c.vocab)
        self.drop = nn.Dropout(c.dropout)
        nn.init.normal_(self.end_of_source, std=c.hidden**-0.5)

    def forward(
        self,
        source: Tensor,
        target: Int[Tensor, "B T"],
        source_lengths: Int[Tensor, " sources"] | None = None,
        target_lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each target token. Padding of the target stands on the right, after all it could
        disturb. The source is tokens N or frames N F, B of them or fewer (`encodes_source_once`)."""
        heard = self.encode(source, source_lengths).repeat(target.shape[0] // max(source.shape[0], 1))
        read = undecorated(self.unroll) if torch.compiler.is_exporting() else self.unroll
        logits: Tensor = self.head(self.drop(read(heard, target)))
        return logits

    def encode(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> EmitterMemory:
        """What is heard at each place, and after the last of them."""
        if self.embed is None:
            states, last = self.encoder(source, source_lengths)
        else:
            full = torch.full(source.shape[:1], source.shape[1], device=source.device)
            states, last = (
                self.token_encoder(self.drop(self.embed(source))),
                full if source_lengths is None else source_lengths,
            )
        return EmitterMemory(
            self.cells.input_gates(
                torch.cat([states, self.end_of_source.expand(states.shape[0], 1, -1).to(states.dtype)], 1)
            ),
            last,
        )

    def encode_step(self, source: Tensor, states: States) -> States:
        """What is known after one more place: a token B 1, or as many frames B N F as are heard at a time."""
        if self.embed is None:
            return self.encoder.rnn.step(self.encoder.stack_frames(source), states)
        return self.token_encoder.step(self.embed(source), states)

    def initial_states(self, layers: int, like: Tensor) -> States:
        """States of cells that have not heard anything: one beam of every input."""
        zero = like.new_zeros(like.shape[0], 1, self.config.hidden, dtype=self.end_of_source.dtype)
        parts: int = resolve(CELLS, self.config.cell, "cell").parts  # type: ignore[attr-defined]
        return tuple((zero,) * parts for _ in range(layers))

    @disable_compile(recursive=False)  # the loop stays in Python: one small graph, compiled once, for every step
    def unroll(self, heard: EmitterMemory, target: Int[Tensor, "B T"]) -> Float[Tensor, "B T F"]:
        """The states from which each token is written; all rows go through the places side by side."""
        rows, tokens = target.shape
        if not tokens:
            return heard.input_gates.new_zeros(rows, 0, self.config.hidden)
        steps = heard.input_gates.shape[1] - 1 + tokens
        place = torch.arange(steps, device=target.device)
        place = torch.where(place < heard.num_places[:, None], place, heard.input_gates.shape[1] - 1)  # B S
        deciding = self.emitter.start_decisions(place, heard, tokens)
        # taken for all steps at once and split: a gradient of each step's own would be as large as all that was heard
        known = heard.input_gates.gather(1, place[..., None].expand(-1, -1, heard.input_gates.shape[2])).split(1, 1)
        hidden, states = self.initial_states(1, heard.input_gates), []
        at, wrote = target.new_zeros(rows, 1), heard.input_gates.new_zeros(rows, 1, 1)  # the token waited for; b_{i-1}
        for step in range(steps):
            words = self.drop(self.embed_target(target.gather(1, at.clamp(max=tokens - 1))))
            hidden = self.cells(known[step], torch.cat([words, wrote.to(words.dtype)], -1), hidden)
            states.append(hidden[-1][0])
            emits = deciding.step(states[-1], at)  # B 1
            at, wrote = at + emits, emits[..., None].to(wrote.dtype)
        when = deciding.end()  # B T: the step at which each token was written
        found = torch.cat(states, 1).gather(1, when[..., None].expand(-1, -1, self.config.hidden))
        self.emitter.record_queries(found)
        self.emitter(heard.at(when), heard.input_gates)  # to be watched
        return found

    # -- writing, one token after another ------------------------------------------------------------------------------

    def initial_state(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> DecoderState:
        """All is heard, nothing is decided: the state, how far was read, and whether a token was just written."""
        heard = self.encode(source, source_lengths)
        none = torch.zeros(source.shape[0], 1, dtype=torch.long, device=source.device)
        return DecoderState(heard, (self.initial_states(1, heard.input_gates), none, none))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Every beam reads on until it would write; logits of what it would write there."""
        heard, (hidden, step, wrote) = state.memory, state.hidden
        words, waits = self.embed_target(tokens), torch.ones_like(tokens, dtype=torch.bool)
        spot = step
        while bool(waits.any()):
            known = heard.input_gates[torch.arange(len(tokens), device=tokens.device)[:, None], heard.row(step)]
            new, emits = self.step_and_decide(known, words, wrote[..., None].to(words.dtype), hidden)
            emits = emits | (step >= heard.num_places[:, None])
            hidden = tree_map(lambda now, old: torch.where(waits[..., None], now, old), new, hidden)  # noqa: B023
            wrote, spot = torch.where(waits, emits.long(), wrote), torch.where(waits, step, spot)
            step, waits = step + waits, waits & ~emits
        self.emitter(heard.at(spot), heard.input_gates)
        return self.head(hidden[-1][0]), replace(state, hidden=(hidden, step, wrote))

    def step_and_decide(
        self,
        input_gates: Float[Tensor, "B K gates"],
        words: Float[Tensor, "B K E"],
        wrote: Float[Tensor, "B K 1"],
        hidden: States,
    ) -> tuple[States, Bool[Tensor, "B K"]]:
        """One place further: the new states, and whether to write there, by the likelier choice."""
        hidden = self.cells(input_gates, torch.cat([words, wrote], -1), hidden)
        return hidden, self.emitter.unit(hidden[-1][0]).squeeze(-1) >= 0
