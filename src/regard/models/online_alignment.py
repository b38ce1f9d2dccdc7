"""Online alignment: read the source one token at a time and decide after each whether to emit an output token.

    tokens      an embedding table for each side, or frames as source (`input_dim`, `frame_stack` of them at a time)
    positions   none: recurrence reads in order
    attention   hard and online: a Bernoulli unit at each source position; outputs do not depend on later positions
    head        linear, on the state

    s_i = cell(h_i, y_last, b_{i-1}; s_{i-1})        b_i ~ Bernoulli(σ(u · s_i))        b_i = 1: y_t ~ softmax(W s_i)

h_i is the output of a unidirectional encoder at position i. At most one token is emitted at a position; after the last
position, the remaining tokens are emitted one after another, up to the end token. The choices b are discrete: they are
trained by REINFORCE, the reward being the log-likelihood of the tokens emitted from then on (tasks/reinforce.py). In
training they are sampled, in eval mode the likelier choice is taken.

Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016. arXiv:1608.01281
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import nn

from regard.attention.aligners.hard import ForcedChoices
from regard.attention.masked_softmax import upcast
from regard.blocks import CELLS, RNN_ENCODERS
from regard.blocks.decoder_state import DecoderState, StatefulDecodable, tree_map
from regard.blocks.rnn import RNNCellStack, States, undecorated
from regard.blocks.rnn_decoder import make_embedding
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState, PassState
from regard.core.lazy_dynamo import disable_compile
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part, resolve
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.ctc import AcousticEncoder


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an online alignment model."""

    vocab: int
    width: int = 256  # of the embeddings
    hidden: int = 256  # units of the recurrent layers
    layers: int = 2  # of the encoder, below the deciding cell
    cell: str = "lstm"  # of encoder and deciding cell: rnn, lstm, gru
    # initial log-odds of emitting at a position: the lower, the later
    emission_bias: float = field(0.0, low=-30, high=30)
    dropout: float = field(0.0, low=0, below=1)  # of embeddings, between layers, and before the head
    input_dim: int | None = None  # features of a frame; None: the source is tokens
    frame_stack: int = 1  # so many frames are one source position
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Small is for some hundred thousand words or a few hours of speech, tiny for a laptop.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "small": {"dropout": 0.2},
    "tiny": {"width": 64, "hidden": 128, "layers": 1, "dropout": 0.1},
}


class OnlineAlignment(StatefulDecodable, ModelContract):
    """A source and target tokens to logits of the next target token, each at its emission."""

    encodes_source_once = True  # a source with several adjacent targets is encoded once

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        if c.frame_stack > 1 and c.input_dim is None:
            raise RegardError("frame_stack needs frames: set input_dim, or use frame_stack=1 with tokens")
        self.embed = make_embedding(c.vocab, c.width, c.pad) if c.input_dim is None else None
        forwards = f"{c.cell}(directions=1)"
        if c.input_dim is None:
            self.token_encoder = build_part(
                RNN_ENCODERS, forwards, "encoder", width=c.width, hidden=c.hidden, layers=c.layers, dropout=c.dropout
            )
        else:  # CTC's encoder, so that it can start from a CTC model
            self.encoder = AcousticEncoder(
                c.input_dim, 0, c.width, c.hidden, c.layers, forwards, c.dropout, c.frame_stack
            )
        self.end_of_source = nn.Parameter(torch.zeros(c.hidden))  # input after the last position
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
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the token after each target token; targets are padded on the right.

        The source is tokens B N or frames B N F; it may have fewer rows than the target (`encodes_source_once`).
        """
        memory = self.encode(source, source_lengths).repeat(target.shape[0] // max(source.shape[0], 1))
        read = undecorated(self.unroll) if torch.compiler.is_exporting() else self.unroll
        logits: Tensor = self.head(self.drop(read(memory, target, pass_state)))
        return logits

    def encode(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> EmitterMemory:
        """Return the encoder's output at each position, and after the last."""
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
        """Encode one more position: a token B 1, or `frame_stack` frames B N F."""
        if self.embed is None:
            return self.encoder.rnn.step(self.encoder.stack_frames(source), states)
        return self.token_encoder.step(self.embed(source), states)

    def initial_states(self, layers: int, like: Tensor) -> States:
        """Return the initial states of the deciding cell, for one beam of every input."""
        zero = like.new_zeros(like.shape[0], 1, self.config.hidden, dtype=self.end_of_source.dtype)
        parts: int = resolve(CELLS, self.config.cell, "cell").parts  # type: ignore[attr-defined]
        return tuple((zero,) * parts for _ in range(layers))

    @disable_compile(recursive=False)  # the loop stays in Python; its step is compiled once
    def unroll(
        self, memory: EmitterMemory, target: Int[Tensor, "B T"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B T F"]:
        """Return the states at which each token is emitted; all rows advance in parallel."""
        rows, tokens = target.shape
        if not tokens:
            return memory.input_gates.new_zeros(rows, 0, self.config.hidden)
        steps = memory.input_gates.shape[1] - 1 + tokens
        place = torch.arange(steps, device=target.device)
        place = torch.where(place < memory.num_places[:, None], place, memory.input_gates.shape[1] - 1)  # B S
        deciding = self.emitter.start_decisions(place, memory, tokens)
        # gathered for all steps at once and split: the gradient of each step alone would be as large as the memory
        known = memory.input_gates.gather(1, place[..., None].expand(-1, -1, memory.input_gates.shape[2])).split(1, 1)
        hidden, states = self.initial_states(1, memory.input_gates), []
        at, wrote = (
            target.new_zeros(rows, 1),
            memory.input_gates.new_zeros(rows, 1, 1),
        )  # the next token to emit; b_{i-1}
        for step in range(steps):
            words = self.drop(self.embed_target(target.gather(1, at.clamp(max=tokens - 1))))
            hidden = self.cells(known[step], torch.cat([words, wrote.to(words.dtype)], -1), hidden)
            states.append(hidden[-1][0])
            emits = deciding.step(states[-1], at)  # B 1
            at, wrote = at + emits, emits[..., None].to(wrote.dtype)
        layer_state = (PassState() if pass_state is None else pass_state).layer(0)
        when = deciding.end(layer_state)  # B T: the step at which each token was emitted
        found = torch.cat(states, 1).gather(1, when[..., None].expand(-1, -1, self.config.hidden))
        if self.emitter.training:  # for a baseline: the state after the previous token
            layer_state.publish("choice_query", nn.functional.pad(found.detach()[:, :-1], (0, 0, 1, 0)))
        self.emitter(memory.at(when), memory.input_gates)  # so that it can be watched
        return found

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    def initial_state(self, source: Tensor, source_lengths: Int[Tensor, " B"] | None = None) -> DecoderState:
        """Return the encoded source, the initial states, the position, and whether a token was just emitted."""
        memory = self.encode(source, source_lengths)
        none = torch.zeros(source.shape[0], 1, dtype=torch.long, device=source.device)
        return DecoderState(memory, (self.initial_states(1, memory.input_gates), none, none))

    def step(self, tokens: Int[Tensor, "B K"], state: DecoderState) -> tuple[Float[Tensor, "B K V"], DecoderState]:
        """Advance every beam to its next emission; return the logits of the token to emit."""
        memory, (hidden, step, wrote) = state.memory, state.hidden
        words, waits = self.embed_target(tokens), torch.ones_like(tokens, dtype=torch.bool)
        spot = step
        while bool(waits.any()):
            known = memory.input_gates[torch.arange(len(tokens), device=tokens.device)[:, None], memory.row(step)]
            new, emits = self.step_and_decide(known, words, wrote[..., None].to(words.dtype), hidden)
            emits = emits | (step >= memory.num_places[:, None])
            hidden = tree_map(lambda now, old: torch.where(waits[..., None], now, old), new, hidden)  # noqa: B023
            wrote, spot = torch.where(waits, emits.long(), wrote), torch.where(waits, step, spot)
            step, waits = step + waits, waits & ~emits
        self.emitter(memory.at(spot), memory.input_gates)
        return self.head(hidden[-1][0]), replace(state, hidden=(hidden, step, wrote))

    def step_and_decide(
        self,
        input_gates: Float[Tensor, "B K gates"],
        words: Float[Tensor, "B K E"],
        wrote: Float[Tensor, "B K 1"],
        hidden: States,
    ) -> tuple[States, Bool[Tensor, "B K"]]:
        """Advance one position; return the new states and whether to emit there (the likelier choice)."""
        hidden = self.cells(input_gates, torch.cat([words, wrote], -1), hidden)
        return hidden, self.emitter.unit(hidden[-1][0]).squeeze(-1) >= 0


@dataclass(frozen=True, eq=False)
class EmitterMemory:
    """The encoded source as input to the gates of the deciding cell, shared by the beams of an input."""

    input_gates: Float[Tensor, "B M1 gates"]  # the last column is for after the source
    num_places: Int[Tensor, " B"]  # source positions

    def select_rows(self, rows: Int[Tensor, " R"]) -> EmitterMemory:
        return EmitterMemory(self.input_gates[rows], self.num_places[rows])

    def repeat(self, many: int) -> EmitterMemory:
        """Repeat every input `many` times, copies adjacent."""
        if many <= 1:
            return self
        every = torch.arange(self.num_places.shape[0], device=self.num_places.device)
        return self.select_rows(every.repeat_interleave(many))

    def row(self, step: Int[Tensor, "B K"]) -> Int[Tensor, "B K"]:
        """Return the column of `input_gates` for a step."""
        return torch.where(step < self.num_places[:, None], step, self.input_gates.shape[1] - 1)

    def at(self, step: Int[Tensor, "B K"]) -> Int[Tensor, "B K"]:
        """Return the source position reached at a step."""
        return torch.minimum(step, (self.num_places[:, None] - 1).clamp(min=0))


class Emitter(ForcedChoices, nn.Module):
    """The Bernoulli unit: write a token now, or read on.

        b_i ~ Bernoulli(σ(u · s_i))        in training
        b_i = [u · s_i ≥ 0]                in eval mode

    A token must be written when everything is read, and none may be when all are written; such choices are not sampled
    and not taught. All choices made while waiting for a token get the same reward, that token's and those after it, so
    they are published together, one number for each token. Calling the unit returns the places at which tokens were
    written as an alignment B K M.
    """

    def __init__(self, hidden: int, offset: float = 0.0) -> None:
        super().__init__()
        self.unit = nn.Linear(hidden, 1)
        nn.init.zeros_(self.unit.weight)
        nn.init.constant_(self.unit.bias, offset)

    def start_decisions(self, place: Int[Tensor, "B S"], memory: EmitterMemory, tokens: int) -> EmitDecisions:
        """Return the choices of one pass, none of them made yet."""
        forced = place >= memory.num_places[:, None]
        draws = torch.rand(place.shape, device=place.device) if self.training and self._path is None else None
        return EmitDecisions(self, forced, draws, self._path, tokens)

    def all_paths(self, places: int, tokens: int) -> Iterator[tuple[int, ...]]:
        """Yield every path: the source position of each token, or `places` for tokens after the last position."""
        for many in range(min(places, tokens) + 1):
            for early in combinations(range(places), many):
                yield early + (places,) * (tokens - many)

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M C"]:
        """Return the memory itself, which is all that an emitter needs."""
        return memory

    def weights(
        self, place: Int[Tensor, "B K"], memory: Float[Tensor, "B M1 C"]
    ) -> tuple[Float[Tensor, "B K M"], None]:
        """Return one at the place up to which the source was read when a token was written."""
        return nn.functional.one_hot(place, max(memory.shape[1] - 1, 1)).to(self.unit.weight.dtype), None

    def forward(
        self, place: Int[Tensor, "B K"], memory: Float[Tensor, "B M1 C"]
    ) -> tuple[Float[Tensor, "B K M"], None]:
        """Return `weights(...)`; the model calls the module, so that it can be watched."""
        return self.weights(place, memory)


class EmitDecisions:
    """The choices of one pass over a batch, one place after another."""

    def __init__(self, emit: Emitter, forced: Tensor, draws: Tensor | None, path: Tensor | None, tokens: int) -> None:
        self.emit, self.forced, self.draws, self.path, self.tokens = emit, forced, draws, path, tokens
        self.scores: list[Tensor] = []
        self.emits: list[Tensor] = []
        self.token_index: list[Tensor] = []  # for which token

    def step(self, state: Float[Tensor, "B 1 F"], at: Int[Tensor, "B 1"]) -> Int[Tensor, "B 1"]:
        """Return 1 to write or 0 to read on: 0 when all tokens are written, else 1 when everything is read."""
        step, score = len(self.scores), upcast(self.emit.unit(state).squeeze(-1))
        if self.path is not None:
            emits = self.path.gather(1, at.clamp(max=self.tokens - 1)) == step
        elif self.draws is not None:
            emits = self.draws[:, step : step + 1] < score.detach().sigmoid()
        else:
            emits = score >= 0
        emits = (emits | self.forced[:, step : step + 1]) & (at < self.tokens)
        self.scores.append(score)
        self.emits.append(emits)
        self.token_index.append(at)
        return emits.long()

    def end(self, layer_state: LayerState) -> Int[Tensor, "B T"]:
        """Return the step at which each token was written; in training, publish the log-probability and entropy."""
        emits, token_index = torch.cat(self.emits, 1), torch.cat(self.token_index, 1)
        to = token_index.clamp(max=self.tokens - 1)
        zeros = to.new_zeros(to.shape[0], self.tokens)
        when = zeros.scatter_add(1, to, torch.arange(emits.shape[1], device=to.device) * emits)
        if self.emit.training:
            scores = torch.cat(self.scores, 1)
            log_p = nn.functional.logsigmoid(torch.where(emits, scores, -scores))
            p = scores.sigmoid()
            entropy = p * nn.functional.softplus(-scores) + (1 - p) * nn.functional.softplus(scores)
            free = ~self.forced & (token_index < self.tokens)
            for name, x in (("choice_log_prob", log_p), ("choice_entropy", entropy)):
                layer_state.publish(name, zeros.to(x.dtype).scatter_add(1, to, x * free))
        return when
