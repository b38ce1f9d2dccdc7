"""The emitter: read on, or write now? A Bernoulli unit for models that write while they are being read to.

    b_i ~ Bernoulli(σ(u · s_i))        in training; drawn once for each place of a reading, with its log-probability
    b_i = [u · s_i ≥ 0]                in eval mode

A token must be written where all is read, and none may be where all is written; such choices are not drawn, and not
taught. What was drawn is told to the task as an aligner with hard choices tells it (attention.aligners.hard).

Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016. arXiv:1608.01281
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import nn

from regard.attention.aligners.hard import ForcedChoices
from regard.attention.masked_softmax import upcast
from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class EmitterMemory:
    """What was heard of each input, as its part in the gates of the deciding cell; the beams of an input share it."""

    input_gates: Float[Tensor, "B M1 gates"]  # the last column is for when there is nothing more to read
    num_places: Int[Tensor, " B"]  # how many places there are to read

    def select_rows(self, rows: Int[Tensor, " R"]) -> EmitterMemory:
        """Keep these inputs."""
        return EmitterMemory(self.input_gates[rows], self.num_places[rows])

    def repeat(self, many: int) -> EmitterMemory:
        """Every input so many times, the copies side by side."""
        if many <= 1:
            return self
        every = torch.arange(self.num_places.shape[0], device=self.num_places.device)
        return self.select_rows(every.repeat_interleave(many))

    def row(self, step: Int[Tensor, "B K"]) -> Int[Tensor, "B K"]:
        """The column of `describe_labels` for a step."""
        return torch.where(step < self.num_places[:, None], step, self.input_gates.shape[1] - 1)

    def at(self, step: Int[Tensor, "B K"]) -> Int[Tensor, "B K"]:
        """The place up to which was read at a step."""
        return torch.minimum(step, (self.num_places[:, None] - 1).clamp(min=0))


class Emitter(ForcedChoices, nn.Module):
    """The Bernoulli unit: write now, or read on. It draws in training mode and remembers how likely that was.

    All choices made while a token was waited for are paid alike, with that token and those after it, so they are told
    together: one number a token. Called, it gives the places at which tokens were written as an alignment B K M.
    """

    def __init__(self, hidden: int, offset: float = 0.0) -> None:
        super().__init__()
        self.unit = nn.Linear(hidden, 1)
        nn.init.zeros_(self.unit.weight)
        nn.init.constant_(self.unit.bias, offset)
        self._log_probs: tuple[Tensor, Tensor] | None = None
        self._queries: Tensor | None = None

    def start_decisions(self, place: Int[Tensor, "B S"], heard: EmitterMemory, tokens: int) -> EmitDecisions:
        """The choices of one reading."""
        self._log_probs = self._queries = None
        forced = place >= heard.num_places[:, None]
        draws = torch.rand(place.shape, device=place.device) if self.training and self._path is None else None
        return EmitDecisions(self, forced, draws, self._path, tokens)

    def record_queries(self, states: Float[Tensor, "B T F"]) -> None:
        """The state in which the wait for each token began: that of the token before."""
        if self.training:
            self._queries = nn.functional.pad(states.detach()[:, :-1], (0, 0, 1, 0))

    def queries(self) -> Float[Tensor, "B T F"]:
        """What a baseline may know: the state before the choices of each token."""
        if self._queries is None:
            raise RegardError("nothing was drawn: choices are drawn and told in training mode")
        return self._queries

    def log_probs(self) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probability and entropy (nats) of the choices made for each token; given once a reading."""
        if self._log_probs is None:
            raise RegardError("nothing was drawn: choices are drawn and told in training mode")
        told, self._log_probs, self._queries = self._log_probs, None, None
        return told

    def all_paths(self, places: int, tokens: int) -> Iterator[tuple[int, ...]]:
        """Every way to write so many tokens: some at places of their own, the rest when all is read (there the place is
        the number of places)."""
        for many in range(min(places, tokens) + 1):
            for early in combinations(range(places), many):
                yield early + (places,) * (tokens - many)

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M C"]:
        """As every aligner has them: here what was heard."""
        return memory

    def weights(self, place: Int[Tensor, "B K"], heard: Float[Tensor, "B M1 C"]) -> tuple[Float[Tensor, "B K M"], None]:
        """One at the place up to which was read when a token was written."""
        return nn.functional.one_hot(place, max(heard.shape[1] - 1, 1)).to(self.unit.weight.dtype), None

    def forward(self, place: Int[Tensor, "B K"], heard: Float[Tensor, "B M1 C"]) -> tuple[Float[Tensor, "B K M"], None]:
        """The same; the model calls it, so that it can be watched."""
        return self.weights(place, heard)


class EmitDecisions:
    """The choices of one reading of a batch, one place after another."""

    def __init__(self, emit: Emitter, forced: Tensor, draws: Tensor | None, path: Tensor | None, tokens: int) -> None:
        self.emit, self.forced, self.draws, self.path, self.tokens = emit, forced, draws, path, tokens
        self.scores: list[Tensor] = []
        self.emits: list[Tensor] = []
        self.token_index: list[Tensor] = []  # for which token

    def step(self, state: Float[Tensor, "B 1 F"], at: Int[Tensor, "B 1"]) -> Int[Tensor, "B 1"]:
        """Write (1) or read on (0); never when all is written, always when all is read."""
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

    def end(self) -> Int[Tensor, "B T"]:
        """The step at which each token was written; in training what is to be told is put down."""
        emits, token_index = torch.cat(self.emits, 1), torch.cat(self.token_index, 1)
        to = token_index.clamp(max=self.tokens - 1)
        nothing = to.new_zeros(to.shape[0], self.tokens)
        when = nothing.scatter_add(1, to, torch.arange(emits.shape[1], device=to.device) * emits)
        if self.emit.training:
            scores = torch.cat(self.scores, 1)
            log_p = nn.functional.logsigmoid(torch.where(emits, scores, -scores))
            p = scores.sigmoid()
            entropy = p * nn.functional.softplus(-scores) + (1 - p) * nn.functional.softplus(scores)
            free = ~self.forced & (token_index < self.tokens)
            told = (nothing.to(x.dtype).scatter_add(1, to, x * free) for x in (log_p, entropy))
            self.emit._log_probs = (next(told), next(told))
        return when
