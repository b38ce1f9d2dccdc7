"""CTC decoding: greedy, and prefix beam search.

    greedy    the most likely label of every frame; repeats are merged, blanks dropped
    beam      p(prefix) summed over all its alignments, in two parts: those that end in a blank and those that do not

              next frame        prefix stays                                   prefix grows by k
              ends in a blank   p_b' = (p_b + p_n) p(blank)                    -
              in a label        p_n' = p_n p(last)                             p_n' = p_b p(k)             k = last
                                                                               p_n' = (p_b + p_n) p(k)     k ≠ last

Greedy finds the most likely *alignment*, the beam the most likely *text*, whose alignments may each be less likely. A
language model joins in where a prefix grows: score = log p(prefix | audio) + weight · log p_lm(prefix) + bonus ·
length, where the bonus makes up for the cost of every further token. It is any function from a prefix to the
log-probabilities of the next label: an n-gram (decoding.ngram_lm), or a network through `language_model_scorer`. With
`eos` the language model also scores the end of the text.

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

Scorer = Callable[[tuple[int, ...]], Sequence[float]]  # a prefix -> log-probabilities of the next label

NEG_INF = -math.inf


@dataclass(frozen=True)
class CTCHypothesis:
    """Labels and their log-probability (greedy: of the alignment; beam: of the text, with the language model)."""

    labels: tuple[int, ...]
    score: float


def ctc_decode(
    log_probs: Float[Tensor, "B T V"], lengths: Int[Tensor, " B"], blank: int, beam_size: int = 1, **search: Any
) -> list[CTCHypothesis]:
    """Return the best text of each recording: greedy for one beam and no other options, else beam search."""
    if beam_size == 1 and not search:
        return ctc_greedy_search(log_probs, lengths, blank)
    rows = zip(log_probs.cpu(), lengths.tolist(), strict=True)
    return [ctc_beam_search(row[:length], blank, beam_size, **search)[0] for row, length in rows]


def ctc_greedy_search(log_probs: Float[Tensor, "B T V"], lengths: Int[Tensor, " B"], blank: int) -> list[CTCHypothesis]:
    """Return the most likely label of every frame, merged, for each recording."""
    best, labels = log_probs.max(-1)
    valid = torch.arange(log_probs.shape[1], device=log_probs.device) < lengths[:, None]
    changed = torch.nn.functional.pad(labels[:, 1:] != labels[:, :-1], (1, 0), value=True)
    emitted = valid & changed & (labels != blank)
    scores = (best * valid).sum(1).tolist()
    if (observer := current_observer()) is not None:
        observer.on_ctc_greedy(labels, emitted)
    return [
        CTCHypothesis(tuple(row[mask].tolist()), score)
        for row, mask, score in zip(labels, emitted, scores, strict=True)
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
    """Return the most likely texts of one recording, best first; labels below `min_log_prob` are skipped."""
    if not 1 <= num_candidates <= beam_size:
        raise BadInput(f"num_candidates must be 1 to beam_size ({beam_size}), got {num_candidates}")
    lm_score: Callable[[tuple[int, ...], int], float] = lambda prefix, label: 0.0  # noqa: E731
    if scorer is not None:
        cached_scorer = lru_cache(maxsize=10_000)(scorer)
        lm_score = lambda prefix, label: lm_weight * cached_scorer(prefix)[label] + insertion_bonus  # noqa: E731
    alive: dict[tuple[int, ...], _Prefix] = {(): _Prefix(0.0, NEG_INF, 0.0)}
    values, candidates_per_frame = _candidate_labels(log_probs, blank, min_log_prob)
    observer = current_observer()
    for row, labels in zip(values, candidates_per_frame, strict=True):
        next_prefixes: dict[tuple[int, ...], _Prefix] = {}
        for prefix, current in alive.items():
            total, last = _log_add(current.blank, current.label), prefix[-1] if prefix else -1
            stays = next_prefixes.setdefault(prefix, _Prefix(NEG_INF, NEG_INF, current.lm))
            stays.blank = _log_add(stays.blank, total + row[blank])
            if prefix:
                stays.label = _log_add(stays.label, current.label + row[last])
            for k in labels:
                source = current.blank if k == last else total
                if source == NEG_INF:  # a label cannot follow itself without a blank between
                    continue
                extended = (*prefix, k)
                extension = next_prefixes.get(extended)
                if extension is None:
                    extension = next_prefixes[extended] = _Prefix(NEG_INF, NEG_INF, current.lm + lm_score(prefix, k))
                extension.label = _log_add(extension.label, source + row[k])
        ranked = sorted(next_prefixes.items(), key=lambda item: -item[1].score)
        if observer is not None:
            observer.on_ctc_frame(ranked, beam_size)
        alive = dict(ranked[:beam_size])
    done = [CTCHypothesis(prefix, _final_score(item, prefix, scorer, lm_weight, eos)) for prefix, item in alive.items()]
    return sorted(done, key=lambda item: -item.score)[:num_candidates]


def language_model_scorer(model: Any, bos: int) -> Scorer:
    """Wrap a causal language model (models.gpt) as a scorer of prefixes."""

    @torch.inference_mode()
    def score_prefix(prefix: tuple[int, ...]) -> Sequence[float]:
        tokens = torch.tensor([[bos, *prefix]], device=next(model.parameters()).device)
        found: list[float] = model(tokens)[0, -1].float().log_softmax(-1).tolist()
        return found

    return score_prefix


class _Prefix:
    """Log-probabilities of a prefix's alignments that end in a blank and in a label, and its language model score."""

    __slots__ = ("blank", "label", "lm")

    def __init__(self, blank: float, label: float, lm: float) -> None:
        self.blank, self.label, self.lm = blank, label, lm

    @property
    def score(self) -> float:
        return _log_add(self.blank, self.label) + self.lm


def _final_score(
    entry: _Prefix, prefix: tuple[int, ...], scorer: Scorer | None, lm_weight: float, eos: int | None
) -> float:
    if scorer is None or eos is None:
        return entry.score
    return entry.score + lm_weight * scorer(prefix)[eos]


def _candidate_labels(log_probs: Tensor, blank: int, min_log_prob: float) -> tuple[list[list[float]], list[list[int]]]:
    """Return the frames as lists, and the labels worth trying at each."""
    candidates = log_probs >= min_log_prob
    candidates[:, blank] = False
    return log_probs.tolist(), [row.nonzero()[:, 0].tolist() for row in candidates]


def _log_add(a: float, b: float) -> float:
    """Return log(exp a + exp b)."""
    if a < b:
        a, b = b, a
    return a if b == NEG_INF else a + math.log1p(math.exp(b - a))
