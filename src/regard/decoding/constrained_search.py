"""Beam search for outputs that must contain given phrases.

    bank     all hypotheses that have met the same number of the phrases' tokens
    step     candidates are the best continuations, and for every beam each token that continues a phrase
    beam     K hypotheses taken from the banks in turn, the fullest bank first, best score first within a bank

Without banks, a hypothesis that has just paid for an unlikely phrase would lose to all that have not paid yet. An
output may end only when it contains every phrase; an interrupted phrase starts again. With no phrases there is one
bank, and this equals plain beam search (tested).

Post, Vilar: Fast Lexically Constrained Decoding with Dynamic Beam Allocation. NAACL 2018. arXiv:1804.06609
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from regard.core.decodable import Decodable
from regard.core.errors import RegardError
from regard.core.shapes import Int, Tensor
from regard.decoding.beam_search import Hypothesis

Phrases = Sequence[Sequence[int]]  # the phrases of one input, each a sequence of tokens


@dataclass(frozen=True)
class ConstraintProgress:
    """Phrases that a hypothesis contains, and the one it is in the middle of."""

    met: frozenset[int] = frozenset()
    current: int | None = None
    position: int = 0  # tokens of phrase `current` written so far

    def after(self, token: int, phrases: Phrases) -> ConstraintProgress:
        """Return the progress once `word` is written."""
        if self.current is not None and phrases[self.current][self.position] == token:
            return self._advance(self.current, self.position + 1, phrases)
        for n, phrase in enumerate(phrases):
            if n not in self.met and phrase[0] == token:
                return self._advance(n, 1, phrases)
        return ConstraintProgress(self.met)

    def _advance(self, phrase: int, position: int, phrases: Phrases) -> ConstraintProgress:
        if position == len(phrases[phrase]):
            return ConstraintProgress(self.met | {phrase})
        return ConstraintProgress(self.met, phrase, position)

    def next_tokens(self, phrases: Phrases, eos: int) -> list[int]:
        """Return the tokens that continue or start a phrase; eos once all phrases are there."""
        if self.current is not None:
            return [phrases[self.current][self.position]]
        return [phrase[0] for n, phrase in enumerate(phrases) if n not in self.met] or ([eos] if phrases else [])

    def count(self, phrases: Phrases) -> int:
        """Return the number of phrase tokens met, which is the number of its bank."""
        return sum(len(phrases[n]) for n in self.met) + self.position


@dataclass
class _LiveHypothesis:
    tokens: list[int]
    total: float
    progress: ConstraintProgress


@dataclass
class _InputSearch:
    """State of one input's search, in plain Python: constraints are few, and the model dominates the time."""

    phrases: Phrases
    limit: int
    live: list[_LiveHypothesis] = field(default_factory=lambda: [_LiveHypothesis([], 0.0, ConstraintProgress())])
    pool: list[Hypothesis] = field(default_factory=list)
    done: bool = False


def constrained_beam_search(
    model: Decodable,
    *inputs: Tensor,
    phrases: Sequence[Phrases],
    max_length: int | Int[Tensor, " B"],
    beam_size: int = 8,
    length_penalty: float = 1.0,
    num_candidates: int = 1,
) -> list[list[Hypothesis]]:
    """Return the `num_candidates` best outputs per input that contain all of its phrases (given as tokens).

    An input that reaches its limit first returns its best output so far, with ``finished=False``.
    """
    batch = inputs[0].shape[0]
    if len(phrases) != batch:
        raise RegardError(f"got phrases for {len(phrases)} inputs, but there are {batch} inputs")
    if any(not phrase for required in phrases for phrase in required):
        raise RegardError("a required phrase is empty; leave it out")
    limits = torch.as_tensor(max_length).expand(batch).tolist()
    for required, limit in zip(phrases, limits, strict=True):
        if sum(map(len, required)) >= limit:
            raise RegardError(f"the phrases need {sum(map(len, required))} tokens and an eos, but the limit is {limit}")
    searches = [_InputSearch(required, limit) for required, limit in zip(phrases, limits, strict=True)]
    if not batch:
        return []
    with torch.inference_mode():
        _search(model, inputs, searches, beam_size, length_penalty)
    return [search.pool[:num_candidates] for search in searches]


def _search(
    model: Decodable, inputs: tuple[Tensor, ...], searches: list[_InputSearch], beam_size: int, penalty: float
) -> None:
    tokens, state = model.start(*inputs, capacity=1 + beam_size * max(search.limit for search in searches))
    rows = list(searches)  # the inputs still in the batch
    for t in range(1, max(search.limit for search in searches) + 1):
        logits, state = model.step(tokens, state)
        scores = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        best, candidate_tokens = scores.topk(min(2 * beam_size, scores.shape[-1]), dim=-1)
        next_tokens = _constraint_scores(scores, rows, model.eos)
        chosen = [
            _advance_input(
                search, best[b].tolist(), candidate_tokens[b].tolist(), next_tokens[b], t, beam_size, penalty, model.eos
            )
            for b, search in enumerate(rows)
        ]
        live = [b for b, search in enumerate(rows) if not search.done]
        if not live:
            return
        parents = torch.tensor([parents for parents, _ in chosen], device=tokens.device)
        tokens = torch.tensor([candidate_tokens for _, candidate_tokens in chosen], device=tokens.device)
        if 4 * len(live) <= 3 * len(rows):
            keep = torch.tensor(live, device=tokens.device)
            state = model.select(state, keep, parents[keep])
            tokens, rows = tokens[keep], [rows[b] for b in live]
        else:
            state = model.select(state, None, parents)


def _constraint_scores(scores: Tensor, rows: list[_InputSearch], eos: int) -> list[dict[tuple[int, int], float]]:
    """Return for every input {(beam, token): log-probability} of the tokens that continue a phrase."""
    index_rows = [
        (b, beam, token)
        for b, search in enumerate(rows)
        for beam, hypothesis in enumerate(search.live)
        for token in hypothesis.progress.next_tokens(search.phrases, eos)
    ]
    found: list[dict[tuple[int, int], float]] = [{} for _ in rows]
    if index_rows:
        index = torch.tensor(index_rows, device=scores.device).T
        for (b, beam, token), value in zip(index_rows, scores[index[0], index[1], index[2]].tolist(), strict=True):
            found[b][beam, token] = value
    return found


def _advance_input(
    search: _InputSearch,
    best: list[list[float]],
    candidate_tokens: list[list[int]],
    next_tokens: dict[tuple[int, int], float],
    t: int,
    beam_size: int,
    penalty: float,
    eos: int,
) -> tuple[list[int], list[int]]:
    """Advance one input by a step; return its new beams as parents and tokens (K of each, padded)."""
    if search.done:
        return [0] * beam_size, [eos] * beam_size
    continuations = {
        (beam, token): hypothesis.total + score
        for beam, hypothesis in enumerate(search.live)
        for score, token in zip(best[beam], candidate_tokens[beam], strict=True)
    }
    ranked = sorted(continuations.items(), key=lambda item: -item[1])[: 2 * beam_size]
    extra = {(beam, token): search.live[beam].total + score for (beam, token), score in next_tokens.items()}
    ranked += sorted((item for item in extra.items() if item not in ranked), key=lambda item: -item[1])
    complete = sum(map(len, search.phrases))
    for (beam, token), total in ranked[:beam_size] if not search.phrases else ranked:
        if token == eos and search.live[beam].progress.count(search.phrases) == complete:
            search.pool.append(Hypothesis(search.live[beam].tokens, total / t**penalty, total, True))
    search.pool = sorted(search.pool, key=lambda h: -h.score)[:beam_size]
    banks: dict[int, list[tuple[int, _LiveHypothesis]]] = {}
    for (beam, token), total in ranked:
        if token != eos:
            progress = search.live[beam].progress.after(token, search.phrases)
            extended = _LiveHypothesis([*search.live[beam].tokens, token], total, progress)
            banks.setdefault(progress.count(search.phrases), []).append((beam, extended))
    chosen_beams = _allocate_beams(
        [sorted(banks[n], key=lambda c: -c[1].total) for n in sorted(banks, reverse=True)], beam_size
    )
    chosen_beams.sort(key=lambda c: -c[1].total)
    search.live = [hypothesis for _, hypothesis in chosen_beams]
    best_live = max((h.total for h in search.live), default=float("-inf"))
    search.done = len(search.pool) == beam_size and best_live / t**penalty <= search.pool[-1].score
    if not search.done and t >= search.limit:
        furthest = sorted(search.live, key=lambda h: (-h.progress.count(search.phrases), -h.total))
        cut = [Hypothesis(h.tokens, h.total / t**penalty, h.total, False) for h in furthest]
        search.pool += cut[: beam_size - len(search.pool)]
        search.done = True
    parents = [beam for beam, _ in chosen_beams] + [0] * (beam_size - len(chosen_beams))
    tokens = [hypothesis.tokens[-1] for _, hypothesis in chosen_beams] + [eos] * (beam_size - len(chosen_beams))
    return parents, tokens


def _allocate_beams(
    banks: list[list[tuple[int, _LiveHypothesis]]], beam_size: int
) -> list[tuple[int, _LiveHypothesis]]:
    """Fill the beam from the banks in turn; the share of a short bank goes to the others."""
    chosen_beams: list[tuple[int, _LiveHypothesis]] = []
    depth = 0
    while len(chosen_beams) < beam_size and any(depth < len(bank) for bank in banks):
        for bank in banks:
            if depth < len(bank) and len(chosen_beams) < beam_size:
                chosen_beams.append(bank[depth])
        depth += 1
    return chosen_beams
