"""CIDEr-D: how much a caption agrees with what most people said of the picture, weighted by how telling the words are.

    g(c)_w  = count of the n-gram w in c * log(I / pictures whose references have w)          tf-idf, I pictures
    CIDEr-D = 10/4 Σ_{n=1..4} mean over references r of
              exp(-(|c| - |r|)² / (2 σ²)) Σ_w min(g(c)_w, g(r)_w) g(r)_w / (‖g(c)‖ ‖g(r)‖)    σ = 6 words

The weights come from the references that are scored against, so a score belongs to its test set. The score of a picture
is at most 10; the score of a set is the mean. N-grams are of words as they come, without stemming.

Vedantam, Zitnick, Parikh: CIDEr: Consensus-based Image Description Evaluation. CVPR 2015. arXiv:1411.5726
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from regard.core.errors import BadInput

ORDERS, SIGMA = 4, 6.0

Grams = list[Counter[tuple[str, ...]]]  # by order


def cider(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the score of every output, 0 to 10, against its references; words are separated by spaces."""
    if len(outputs) != len(references) or not all(references):
        raise BadInput(f"{len(outputs)} captions cannot be scored against references of {len(references)} pictures")
    if not outputs:
        raise BadInput("there is nothing to score")
    counted = [[_ngrams(each) for each in several] for several in references]
    pictures: Counter[tuple[str, ...]] = Counter()
    for several in counted:
        pictures.update({gram for each in several for order in each for gram in order})
    log_size = math.log(len(outputs))

    def weighted(grams: Grams) -> list[dict[tuple[str, ...], float]]:
        return [{w: n * (log_size - math.log(max(1, pictures[w]))) for w, n in order.items()} for order in grams]

    found = []
    for output, several in zip(outputs, counted, strict=True):
        grams = _ngrams(output)
        own = weighted(grams)
        scores = [_similarity(own, weighted(each), _words(grams) - _words(each)) for each in several]
        found.append(10 * sum(scores) / len(scores))
    return found


def _similarity(
    own: list[dict[tuple[str, ...], float]], other: list[dict[tuple[str, ...], float]], longer: int
) -> float:
    """Return the mean over the orders of the clipped cosine, less for captions of different length."""
    total = 0.0
    for a, b in zip(own, other, strict=True):
        norms = math.hypot(*a.values()) * math.hypot(*b.values())
        product = sum(min(value, b[w]) * b[w] for w, value in a.items() if w in b)
        total += product / norms if norms else 0.0
    return total / ORDERS * math.exp(-(longer**2) / (2 * SIGMA**2))


def _ngrams(text: str) -> Grams:
    words = text.split()
    return [Counter(zip(*(words[k:] for k in range(n)), strict=False)) for n in range(1, ORDERS + 1)]


def _words(grams: Grams) -> int:
    """Return the length that the penalty compares: the pairs of neighbouring words, as in the paper's code."""
    return sum(grams[1].values())
