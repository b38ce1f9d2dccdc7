"""METEOR with exact and stem matches: how many words a caption shares with a reference, and in how few pieces.

    P, R       matched words as a share of the caption and of the reference
    F          P R / (α P + (1 - α) R)            α = 0.9: recall counts nine times as much
    penalty    γ (chunks / matches)^β             β = 3, γ = 0.5; a chunk: matches that follow each other in both
    score      (1 - penalty) F, with the reference for which it is highest; of a set: the mean over the pictures

Words are matched from the end, each once: first equal words, then words with an equal stem (metrics.porter_stem). The
original also matches synonyms and paraphrases from tables, with a program in Java; this one does not, so its scores are
lower, and they are to be compared with each other only.

Banerjee, Lavie: METEOR. ACL workshop, 2005; Lavie, Agarwal: METEOR. WMT 2007 (α, β, γ as matches of NLTK have them)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from regard.core.errors import BadInput
from regard.metrics.porter_stem import porter_stem

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5


def meteor(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the score of every output, 0 to 1, against its references; words are separated by spaces."""
    if len(outputs) != len(references) or not all(references):
        raise BadInput(f"{len(outputs)} captions cannot be scored against references of {len(references)} pictures")
    return [
        max(score_pair(output.split(), each.split()) for each in several)
        for output, several in zip(outputs, references, strict=True)
    ]


def score_pair(output: Sequence[str], reference: Sequence[str]) -> float:
    """Return the score of the words of a caption against those of one reference."""
    pairs = match_words(output, reference)
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(output), len(pairs) / len(reference)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    chunks = 1 + sum((j - i, m - n) != (1, 1) for (i, n), (j, m) in pairwise(pairs))
    return float((1 - GAMMA * (chunks / len(pairs)) ** BETA) * mean)


def match_words(output: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]]:
    """Return the matched places of an output and a reference, in the order of the output."""
    pairs: list[tuple[int, int]] = []
    left, right = list(range(len(output))), list(range(len(reference)))
    stages: tuple[Callable[[str], str], ...] = (str, porter_stem)
    for form in stages:
        for i in reversed(left.copy()):
            found = next((j for j in reversed(right) if form(output[i]) == form(reference[j])), None)
            if found is not None:
                pairs.append((i, found))
                left.remove(i)
                right.remove(found)
    return sorted(pairs)
