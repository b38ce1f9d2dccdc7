"""Reading labels off the frames of a CTC network: greedy, and a beam over prefixes.

    greedy    the likeliest label of every frame; runs become one, blanks are dropped
    beam      p(prefix) summed over all ways of saying it, in two parts: those that end in a blank and those that do not

              next frame        prefix stays                                   prefix grows by k
              ends in a blank   p_b' = (p_b + p_n) p(blank)                    -
              in a label        p_n' = p_n p(last)                             p_n' = p_b p(k)             k = last
                                                                               p_n' = (p_b + p_n) p(k)     k ≠ last

Greedy finds the likeliest *way*, the beam looks for the likeliest *text*, whose ways may each be less likely. A
language model joins in where a prefix grows: score = log p(prefix | sound) + weight · log p_lm(prefix) + bonus ·
length, the bonus making up for what every further word costs. It is any function from a prefix to the log-probabilities
of what may follow, `ends` being the number of the end: an n-gram (tasks.ngram), or a network through `scored_by`.

Hannun, Maas, Jurafsky, Ng: First-Pass Large Vocabulary Continuous Speech Recognition using Bi-Directional Recurrent
DNNs. 2014. arXiv:1408.2873
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.tasks.observer import observer

Scorer = Callable[[tuple[int, ...]], Sequence[float]]  # a prefix -> log-probabilities of the labels that may follow

NEVER = -math.inf


@dataclass(frozen=True)
class Found:
    """Labels and what they scored: log-probability of the text (of the way, where greedy), with the language model's
    part where there is one."""

    labels: tuple[int, ...]
    score: float


def searched(
    logp: Float[Tensor, "B T V"], lengths: Int[Tensor, " B"], blank: int, beams: int = 1, **search: Any
) -> list[Found]:
    """The best text of each recording: greedy with one beam and nothing else asked for, else by a beam."""
    if beams == 1 and not search:
        return greedy(logp, lengths, blank)
    rows = zip(logp.cpu(), lengths.tolist(), strict=True)
    return [beam(row[:many], blank, beams, **search)[0] for row, many in rows]


def greedy(logp: Float[Tensor, "B T V"], lengths: Int[Tensor, " B"], blank: int) -> list[Found]:
    """The likeliest label of every frame, of each recording."""
    best, labels = logp.max(-1)
    inside = torch.arange(logp.shape[1], device=logp.device) < lengths[:, None]
    changed = torch.nn.functional.pad(labels[:, 1:] != labels[:, :-1], (1, 0), value=True)
    kept = inside & changed & (labels != blank)
    scores = (best * inside).sum(1).tolist()
    if (looking_on := observer()) is not None:
        looking_on.read(labels, kept)
    return [Found(tuple(row[keep].tolist()), score) for row, keep, score in zip(labels, kept, scores, strict=True)]


def beam(
    logp: Float[Tensor, "T V"],
    blank: int,
    beams: int = 8,
    nbest: int = 1,
    scorer: Scorer | None = None,
    weight: float = 0.5,
    bonus: float = 0.0,
    ends: int | None = None,
    least: float = -12.0,
) -> list[Found]:
    """The likeliest texts of one recording, best first; labels below `least` at a frame are not tried there."""
    if not 1 <= nbest <= beams:
        raise BadInput(f"{nbest} texts of each recording need at least as many beams, not {beams}")
    judged: Callable[[tuple[int, ...], int], float] = lambda prefix, label: 0.0  # noqa: E731
    if scorer is not None:
        known = lru_cache(maxsize=10_000)(scorer)
        judged = lambda prefix, label: weight * known(prefix)[label] + bonus  # noqa: E731
    alive: dict[tuple[int, ...], _Prefix] = {(): _Prefix(0.0, NEVER, 0.0)}
    values, tried = _tried(logp, blank, least)
    looking_on = observer()
    for row, labels in zip(values, tried, strict=True):
        following: dict[tuple[int, ...], _Prefix] = {}
        for prefix, old in alive.items():
            whole, last = _add(old.blank, old.label), prefix[-1] if prefix else -1
            stays = following.setdefault(prefix, _Prefix(NEVER, NEVER, old.outside))
            stays.blank = _add(stays.blank, whole + row[blank])
            if prefix:
                stays.label = _add(stays.label, old.label + row[last])
            for k in labels:
                before = old.blank if k == last else whole
                if before == NEVER:  # a label cannot follow itself without a blank between
                    continue
                grown = (*prefix, k)
                new = following.get(grown)
                if new is None:
                    new = following[grown] = _Prefix(NEVER, NEVER, old.outside + judged(prefix, k))
                new.label = _add(new.label, before + row[k])
        ranked = sorted(following.items(), key=lambda one: -one[1].score)
        if looking_on is not None:
            looking_on.ranked(ranked, beams)
        alive = dict(ranked[:beams])
    done = [Found(prefix, _finished(one, prefix, scorer, weight, ends)) for prefix, one in alive.items()]
    return sorted(done, key=lambda one: -one.score)[:nbest]


def scored_by(model: Any, bos: int) -> Scorer:
    """A language model that gives logits of the next token (models.gpt) as a judge of prefixes."""

    @torch.inference_mode()
    def judge(prefix: tuple[int, ...]) -> Sequence[float]:
        tokens = torch.tensor([[bos, *prefix]], device=next(model.parameters()).device)
        found: list[float] = model(tokens)[0, -1].float().log_softmax(-1).tolist()
        return found

    return judge


class _Prefix:
    """The log-probability of the ways that end in a blank and in a label, and what the language model adds."""

    __slots__ = ("blank", "label", "outside")

    def __init__(self, blank: float, label: float, outside: float) -> None:
        self.blank, self.label, self.outside = blank, label, outside

    @property
    def score(self) -> float:
        return _add(self.blank, self.label) + self.outside


def _finished(one: _Prefix, prefix: tuple[int, ...], scorer: Scorer | None, weight: float, ends: int | None) -> float:
    if scorer is None or ends is None:
        return one.score
    return one.score + weight * scorer(prefix)[ends]


def _tried(logp: Tensor, blank: int, least: float) -> tuple[list[list[float]], list[list[int]]]:
    """The frames as lists, and the labels worth trying at each."""
    hopeful = logp >= least
    hopeful[:, blank] = False
    return logp.tolist(), [row.nonzero()[:, 0].tolist() for row in hopeful]


def _add(a: float, b: float) -> float:
    """log(exp a + exp b)"""
    if a < b:
        a, b = b, a
    return a if b == NEVER else a + math.log1p(math.exp(b - a))
