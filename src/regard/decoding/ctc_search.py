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
of what may follow, `ends` being the number of the end: an n-gram (decoding.ngram_lm), or a network through `language_model_scorer`.

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
from regard.decoding.search_observer import current_observer

Scorer = Callable[[tuple[int, ...]], Sequence[float]]  # a prefix -> log-probabilities of the labels that may follow

NEG_INF = -math.inf


@dataclass(frozen=True)
class CTCHypothesis:
    """Labels and what they scored: log-probability of the text (of the way, where greedy), with the language model's
    part where there is one."""

    labels: tuple[int, ...]
    score: float


def ctc_decode(
    log_probs: Float[Tensor, "B T V"], lengths: Int[Tensor, " B"], blank: int, beam_size: int = 1, **search: Any
) -> list[CTCHypothesis]:
    """The best text of each recording: greedy with one beam and nothing else asked for, else by a beam."""
    if beam_size == 1 and not search:
        return ctc_greedy_search(log_probs, lengths, blank)
    rows = zip(log_probs.cpu(), lengths.tolist(), strict=True)
    return [ctc_beam_search(row[:many], blank, beam_size, **search)[0] for row, many in rows]


def ctc_greedy_search(log_probs: Float[Tensor, "B T V"], lengths: Int[Tensor, " B"], blank: int) -> list[CTCHypothesis]:
    """The likeliest label of every frame, of each recording."""
    best, labels = log_probs.max(-1)
    inside = torch.arange(log_probs.shape[1], device=log_probs.device) < lengths[:, None]
    changed = torch.nn.functional.pad(labels[:, 1:] != labels[:, :-1], (1, 0), value=True)
    kept = inside & changed & (labels != blank)
    scores = (best * inside).sum(1).tolist()
    if (looking_on := current_observer()) is not None:
        looking_on.on_ctc_greedy(labels, kept)
    return [
        CTCHypothesis(tuple(row[keep].tolist()), score) for row, keep, score in zip(labels, kept, scores, strict=True)
    ]


def ctc_beam_search(
    log_probs: Float[Tensor, "T V"],
    blank: int,
    beam_size: int = 8,
    num_candidates: int = 1,
    scorer: Scorer | None = None,
    lm_weight: float = 0.5,
    insertion_bonus: float = 0.0,
    eos: int | None = None,
    min_log_prob: float = -12.0,
) -> list[CTCHypothesis]:
    """The likeliest texts of one recording, best first; labels below `least` at a frame are not tried there."""
    if not 1 <= num_candidates <= beam_size:
        raise BadInput(f"{num_candidates} texts of each recording need at least as many beams, not {beam_size}")
    judged: Callable[[tuple[int, ...], int], float] = lambda prefix, label: 0.0  # noqa: E731
    if scorer is not None:
        known = lru_cache(maxsize=10_000)(scorer)
        judged = lambda prefix, label: lm_weight * known(prefix)[label] + insertion_bonus  # noqa: E731
    alive: dict[tuple[int, ...], _Prefix] = {(): _Prefix(0.0, NEG_INF, 0.0)}
    values, tried = _candidate_labels(log_probs, blank, min_log_prob)
    looking_on = current_observer()
    for row, labels in zip(values, tried, strict=True):
        following: dict[tuple[int, ...], _Prefix] = {}
        for prefix, old in alive.items():
            whole, last = _log_add(old.blank, old.label), prefix[-1] if prefix else -1
            stays = following.setdefault(prefix, _Prefix(NEG_INF, NEG_INF, old.outside))
            stays.blank = _log_add(stays.blank, whole + row[blank])
            if prefix:
                stays.label = _log_add(stays.label, old.label + row[last])
            for k in labels:
                before = old.blank if k == last else whole
                if before == NEG_INF:  # a label cannot follow itself without a blank between
                    continue
                grown = (*prefix, k)
                new = following.get(grown)
                if new is None:
                    new = following[grown] = _Prefix(NEG_INF, NEG_INF, old.outside + judged(prefix, k))
                new.label = _log_add(new.label, before + row[k])
        ranked = sorted(following.items(), key=lambda one: -one[1].score)
        if looking_on is not None:
            looking_on.on_ctc_frame(ranked, beam_size)
        alive = dict(ranked[:beam_size])
    done = [CTCHypothesis(prefix, _final_score(one, prefix, scorer, lm_weight, eos)) for prefix, one in alive.items()]
    return sorted(done, key=lambda one: -one.score)[:num_candidates]


def language_model_scorer(model: Any, bos: int) -> Scorer:
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
        return _log_add(self.blank, self.label) + self.outside


def _final_score(
    one: _Prefix, prefix: tuple[int, ...], scorer: Scorer | None, lm_weight: float, eos: int | None
) -> float:
    if scorer is None or eos is None:
        return one.score
    return one.score + lm_weight * scorer(prefix)[eos]


def _candidate_labels(log_probs: Tensor, blank: int, min_log_prob: float) -> tuple[list[list[float]], list[list[int]]]:
    """The frames as lists, and the labels worth trying at each."""
    hopeful = log_probs >= min_log_prob
    hopeful[:, blank] = False
    return log_probs.tolist(), [row.nonzero()[:, 0].tolist() for row in hopeful]


def _log_add(a: float, b: float) -> float:
    """log(exp a + exp b)"""
    if a < b:
        a, b = b, a
    return a if b == NEG_INF else a + math.log1p(math.exp(b - a))
