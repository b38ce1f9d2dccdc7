"""ROUGE: how much of a reference summary an output has, and how much of the output is in the reference.

    rouge1, rouge2    pairs of equal words, of equal pairs of words                counted as often as in both
    rougeL            the longest sequence of words that both have in this order    with gaps
    F                 2 P R / (P + R)        P: share of the output's, R: share of the reference's

Words are runs of a-z and 0-9 after lower-casing; `use_stemmer` takes the endings off those of more than three letters
(metrics.porter_stemmer). A corpus's score is the mean over its texts, from 0 to 100. Equal to Google's package rouge_score.

Lin: ROUGE: A Package for Automatic Evaluation of Summaries. ACL 2004 workshop
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from regard.core.errors import BadInput
from regard.metrics.bleu import Score

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")

_WORD = re.compile(r"[a-z0-9]+")


def rouge(outputs: Sequence[str], references: Sequence[Sequence[str]], use_stemmer: bool = False) -> dict[str, Score]:
    """The mean F of each kind; of several references to one output the one it agrees with best."""
    if len(outputs) != len(references):
        raise BadInput(f"{len(outputs)} summaries cannot be scored against {len(references)} references")
    if not outputs:
        raise BadInput("there is nothing to score")
    found: dict[str, list[float]] = {kind: [] for kind in ROUGE_TYPES}
    for output, right in zip(outputs, references, strict=True):
        every = [rouge_pair(output, each, use_stemmer) for each in right]
        for kind in ROUGE_TYPES:
            found[kind].append(max(each[kind] for each in every))
    signature = f"F1 of words a-z0-9, {'Porter stems' if use_stemmer else 'no stems'}, mean of texts, as rouge_score"
    return {
        kind: Score(100 * sum(values) / len(values), signature, f"{len(values)} texts")
        for kind, values in found.items()
    }


def rouge_pair(output: str, reference: str, use_stemmer: bool = False) -> dict[str, float]:
    """F of each kind for one text, 0 to 1."""
    a, b = rouge_tokens(output, use_stemmer), rouge_tokens(reference, use_stemmer)
    return {
        "rouge1": _f_measure(_ngram_overlap(a, b, 1), len(a), len(b)),
        "rouge2": _f_measure(_ngram_overlap(a, b, 2), len(a) - 1, len(b) - 1),
        "rougeL": _f_measure(_lcs_length(a, b), len(a), len(b)),
    }


def rouge_tokens(text: str, use_stemmer: bool = False) -> list[str]:
    """The words that are compared."""
    found = _WORD.findall(text.lower())
    if not use_stemmer:
        return found
    from regard.metrics.porter_stemmer import porter_stem

    return [porter_stem(word) if len(word) > 3 else word for word in found]


def _ngram_overlap(a: Sequence[str], b: Sequence[str], n: int) -> int:
    """How many runs of n words both have."""
    runs = (Counter(zip(*(x[i:] for i in range(n)), strict=False)) for x in (a, b))
    return sum((next(runs) & next(runs)).values())


def _lcs_length(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest common subsequence, one bit a word of b (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for at, word in enumerate(b):
        places[word] = places.get(word, 0) | 1 << at
    whole = (1 << len(b)) - 1
    row = whole
    for word in a:
        both = row & places.get(word, 0)
        row = ((row + both) | (row - both)) & whole
    return len(b) - row.bit_count()


def _f_measure(shared: int, in_output: int, in_reference: int) -> float:
    return 2 * shared / (in_output + in_reference) if shared else 0.0
