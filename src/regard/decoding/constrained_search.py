"""Beam search for outputs that must contain given phrases.

    bank     all hypotheses that have met the same number of the phrases' tokens
    step     candidates are the best continuations, and for every beam each token that continues a phrase
    beam     K places distributed over the banks in turn, the fullest bank first, best score first within a bank

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
    within: int | None = None
    at: int = 0  # tokens of phrase `within` written so far

    def after(self, word: int, phrases: Phrases) -> ConstraintProgress:
        """Return the progress once `word` is written."""
        if self.within is not None and phrases[self.within][self.at] == word:
            return self._advance(self.within, self.at + 1, phrases)
        for n, phrase in enumerate(phrases):
            if n not in self.met and phrase[0] == word:
                return self._advance(n, 1, phrases)
        return ConstraintProgress(self.met)

    def _advance(self, phrase: int, at: int, phrases: Phrases) -> ConstraintProgress:
        if at == len(phrases[phrase]):
            return ConstraintProgress(self.met | {phrase})
        return ConstraintProgress(self.met, phrase, at)

    def next_tokens(self, phrases: Phrases, eos: int) -> list[int]:
        """Return the tokens that continue or start a phrase; eos once all phrases are there."""
        if self.within is not None:
            return [phrases[self.within][self.at]]
        return [phrase[0] for n, phrase in enumerate(phrases) if n not in self.met] or ([eos] if phrases else [])

    def count(self, phrases: Phrases) -> int:
        """Return the number of phrase tokens met, which is the number of its bank."""
        return sum(len(phrases[n]) for n in self.met) + self.at


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
    every = [_InputSearch(required, limit) for required, limit in zip(phrases, limits, strict=True)]
    if not batch:
        return []
    with torch.inference_mode():
        _search(model, inputs, every, beam_size, length_penalty)
    return [one.pool[:num_candidates] for one in every]


def _search(
    model: Decodable, inputs: tuple[Tensor, ...], every: list[_InputSearch], beam_size: int, penalty: float
) -> None:
    tokens, state = model.start(*inputs, capacity=1 + beam_size * max(one.limit for one in every))
    rows = list(every)  # the inputs still in the batch
    for t in range(1, max(one.limit for one in every) + 1):
        logits, state = model.step(tokens, state)
        scores = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        best, words = scores.topk(min(2 * beam_size, scores.shape[-1]), dim=-1)
        next_tokens = _constraint_scores(scores, rows, model.eos)
        chosen = [
            _advance_input(one, best[b].tolist(), words[b].tolist(), next_tokens[b], t, beam_size, penalty, model.eos)
            for b, one in enumerate(rows)
        ]
        live = [b for b, one in enumerate(rows) if not one.done]
        if not live:
            return
        parents = torch.tensor([parents for parents, _ in chosen], device=tokens.device)
        tokens = torch.tensor([words for _, words in chosen], device=tokens.device)
        if 4 * len(live) <= 3 * len(rows):
            keep = torch.tensor(live, device=tokens.device)
            state = model.select(state, keep, parents[keep])
            tokens, rows = tokens[keep], [rows[b] for b in live]
        else:
            state = model.select(state, None, parents)


def _constraint_scores(scores: Tensor, rows: list[_InputSearch], eos: int) -> list[dict[tuple[int, int], float]]:
    """Return for every input {(beam, token): log-probability} of the tokens that continue a phrase."""
    index_rows = [
        (b, beam, word)
        for b, one in enumerate(rows)
        for beam, hypothesis in enumerate(one.live)
        for word in hypothesis.progress.next_tokens(one.phrases, eos)
    ]
    found: list[dict[tuple[int, int], float]] = [{} for _ in rows]
    if index_rows:
        index = torch.tensor(index_rows, device=scores.device).T
        for (b, beam, word), value in zip(index_rows, scores[index[0], index[1], index[2]].tolist(), strict=True):
            found[b][beam, word] = value
    return found


def _advance_input(
    one: _InputSearch,
    best: list[list[float]],
    words: list[list[int]],
    next_tokens: dict[tuple[int, int], float],
    t: int,
    beam_size: int,
    penalty: float,
    eos: int,
) -> tuple[list[int], list[int]]:
    """Advance one input by a step; return its new beams as parents and tokens (K of each, padded)."""
    if one.done:
        return [0] * beam_size, [eos] * beam_size
    grown = {
        (beam, word): hypothesis.total + score
        for beam, hypothesis in enumerate(one.live)
        for score, word in zip(best[beam], words[beam], strict=True)
    }
    ranked = sorted(grown.items(), key=lambda item: -item[1])[: 2 * beam_size]
    extra = {(beam, word): one.live[beam].total + score for (beam, word), score in next_tokens.items()}
    ranked += sorted((item for item in extra.items() if item not in ranked), key=lambda item: -item[1])
    complete = sum(map(len, one.phrases))
    for (beam, word), total in ranked[:beam_size] if not one.phrases else ranked:
        if word == eos and one.live[beam].progress.count(one.phrases) == complete:
            one.pool.append(Hypothesis(one.live[beam].tokens, total / t**penalty, total, True))
    one.pool = sorted(one.pool, key=lambda h: -h.score)[:beam_size]
    banks: dict[int, list[tuple[int, _LiveHypothesis]]] = {}
    for (beam, word), total in ranked:
        if word != eos:
            progress = one.live[beam].progress.after(word, one.phrases)
            grown_one = _LiveHypothesis([*one.live[beam].tokens, word], total, progress)
            banks.setdefault(progress.count(one.phrases), []).append((beam, grown_one))
    chosen_beams = _allocate_beams(
        [sorted(banks[n], key=lambda c: -c[1].total) for n in sorted(banks, reverse=True)], beam_size
    )
    chosen_beams.sort(key=lambda c: -c[1].total)
    one.live = [hypothesis for _, hypothesis in chosen_beams]
    best_live = max((h.total for h in one.live), default=float("-inf"))
    one.done = len(one.pool) == beam_size and best_live / t**penalty <= one.pool[-1].score
    if not one.done and t >= one.limit:
        furthest = sorted(one.live, key=lambda h: (-h.progress.count(one.phrases), -h.total))
        cut = [Hypothesis(h.tokens, h.total / t**penalty, h.total, False) for h in furthest]
        one.pool += cut[: beam_size - len(one.pool)]
        one.done = True
    parents = [beam for beam, _ in chosen_beams] + [0] * (beam_size - len(chosen_beams))
    tokens = [hypothesis.tokens[-1] for _, hypothesis in chosen_beams] + [eos] * (beam_size - len(chosen_beams))
    return parents, tokens


def _allocate_beams(banks: list[list[tuple[int, _LiveHypothesis]]], places: int) -> list[tuple[int, _LiveHypothesis]]:
    """Distribute places over the banks in turn; what a short bank leaves goes to the others."""
    chosen_beams: list[tuple[int, _LiveHypothesis]] = []
    depth = 0
    while len(chosen_beams) < places and any(depth < len(bank) for bank in banks):
        for bank in banks:
            if depth < len(bank) and len(chosen_beams) < places:
                chosen_beams.append(bank[depth])
        depth += 1
    return chosen_beams
