"""Scores by counting: how far what was said agrees with what is true. All from 0 to 1 but Matthews' (-1 to 1).

    accuracy       right / all
    macro_f1       the mean over the classes of 2 P R / (P + R), each class weighing the same
    matthews       (TP·TN - FP·FN) / √..., for any number of classes: 0 is what guessing gives, whatever the shares
    chunk_f1       2 P R / (P + R) over whole chunks, as conlleval counts them: kind, begin and end must all be right
    exact_match    the answer is one of the true ones, but for case, articles, signs and spaces
    word_f1        2 P R / (P + R) over the words of an answer, the best of the true ones, as SQuAD counts them

Tjong Kim Sang, Buchholz: Introduction to the CoNLL-2000 Shared Task: Chunking. CoNLL 2000
Rajpurkar, Zhang, Lopyrev, Liang: SQuAD. EMNLP 2016. arXiv:1606.05250
Gorodkin: Comparing two K-category assignments by a K-category correlation coefficient. 2004
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from regard.core.errors import BadInput

A = TypeVar("A")
Chunk = tuple[str, int, int]  # kind, first, one past the last


def accuracy(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> float:
    """The share of things said that are true."""
    return sum(a == b for a, b in _paired(predictions, references)) / len(references)


def macro_f1(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> float:
    """The mean F1 of all classes that were said or are true."""
    right, asked, there = Counter[Hashable](), Counter(predictions), Counter(references)
    right.update(a for a, b in _paired(predictions, references) if a == b)
    kinds = asked.keys() | there.keys()
    return sum(2 * right[kind] / (asked[kind] + there[kind]) for kind in kinds) / len(kinds)


def matthews_correlation(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> float:
    """Matthews' correlation, in Gorodkin's form for any number of classes; 0 where one side is always the same."""
    right = sum(a == b for a, b in _paired(predictions, references))
    asked, there, n = Counter(predictions), Counter(references), len(references)
    both = right * n - sum(asked[kind] * there[kind] for kind in asked)
    spread = (n * n - sum(c * c for c in asked.values())) * (n * n - sum(c * c for c in there.values()))
    return both / spread**0.5 if spread else 0.0


# -- chunks ------------------------------------------------------------------------------------------------------------


def extract_chunks(tags: Sequence[str]) -> list[Chunk]:
    """The chunks of one sentence. B- begins one; so does I- after another kind or after nothing, as in conlleval."""
    found: list[Chunk] = []
    kind, begin = "", 0
    for at, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        goes_on = mark == "I" and name == kind and kind != ""
        if kind and not goes_on:
            found.append((kind, begin, at))
            kind = ""
        if mark in ("B", "I") and not goes_on:
            kind, begin = name, at
    return found


def chunk_f1(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall and F1 of chunks over all sentences; both sides are lists of sentences of tags."""
    right = asked = there = 0
    for a, b in _paired(predictions, references):
        if len(a) != len(b):
            raise BadInput(f"a sentence has {len(b)} words, but {len(a)} tags were given to it")
        mine, yours = set(extract_chunks(a)), set(extract_chunks(b))
        right, asked, there = right + len(mine & yours), asked + len(mine), there + len(yours)
    precision, recall = right / max(asked, 1), right / max(there, 1)
    return {"precision": precision, "recall": recall, "f1": 2 * right / max(asked + there, 1)}


def is_chunk_tagging(tags: Sequence[str]) -> bool:
    """Whether tags are of the kind that marks chunks: O, B-NP, I-NP."""
    return any(tag.startswith("B-") for tag in tags) and all(tag == "O" or tag[:2] in ("B-", "I-") for tag in tags)


# -- answers -----------------------------------------------------------------------------------------------------------


def exact_match(predictions: str, references: Sequence[str]) -> float:
    """1 where the answer is one of the true ones, but for case, articles, signs and spaces."""
    return float(any(_normalize_answer(predictions) == _normalize_answer(each) for each in references))


def word_f1(predictions: str, references: Sequence[str]) -> float:
    """The F1 of the answer's words, by the true answer that it agrees with best."""
    return max((_word_f1(_normalize_answer(predictions), _normalize_answer(each)) for each in references), default=0.0)


def _word_f1(predictions: list[str], references: list[str]) -> float:
    if not predictions or not references:
        return float(predictions == references)
    return 2 * sum((Counter(predictions) & Counter(references)).values()) / (len(predictions) + len(references))


_SIGNS = str.maketrans("", "", string.punctuation)


def _normalize_answer(answer: str) -> list[str]:
    words = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_SIGNS))
    return words.split()


def _paired(predictions: Sequence[A], references: Sequence[A]) -> Iterable[tuple[A, A]]:
    if len(predictions) != len(references):
        raise BadInput(f"{len(predictions)} answers cannot be compared with {len(references)} true ones")
    if not references:
        raise BadInput("there is nothing to score")
    return zip(predictions, references, strict=True)
