"""Classification metrics, from 0 to 1 except Matthews' correlation (-1 to 1).

    accuracy       correct / all
    macro_f1       mean over the classes of 2 P R / (P + R)
    matthews       (TP·TN - FP·FN) / √..., for any number of classes: 0 is chance level, whatever the class shares
    chunk_f1       2 P R / (P + R) over whole chunks, as in conlleval: type, start and end must all be correct
    exact_match    the answer equals a reference up to case, articles, punctuation and spaces
    word_f1        2 P R / (P + R) over the words of an answer, best over the references, as in SQuAD

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
Chunk = tuple[str, int, int]  # type, start, end (exclusive)


def accuracy(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> float:
    """Return the share of predictions that equal their reference."""
    return sum(a == b for a, b in _paired(predictions, references)) / len(references)


def macro_f1(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> float:
    """Return the mean F1 over all classes that occur in predictions or references."""
    correct, predicted, actual = Counter[Hashable](), Counter(predictions), Counter(references)
    correct.update(a for a, b in _paired(predictions, references) if a == b)
    classes = predicted.keys() | actual.keys()
    return sum(2 * correct[kind] / (predicted[kind] + actual[kind]) for kind in classes) / len(classes)


def matthews_correlation(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> float:
    """Return Matthews' correlation in Gorodkin's multi-class form; 0 if either side is constant."""
    correct = sum(a == b for a, b in _paired(predictions, references))
    predicted, actual, n = Counter(predictions), Counter(references), len(references)
    covariance = correct * n - sum(predicted[kind] * actual[kind] for kind in predicted)
    variance = (n * n - sum(c * c for c in predicted.values())) * (n * n - sum(c * c for c in actual.values()))
    return covariance / variance**0.5 if variance else 0.0


# -- chunks ------------------------------------------------------------------------------------------------------------


def extract_chunks(tags: Sequence[str]) -> list[Chunk]:
    """Return the chunks of one sentence. As in conlleval, I- outside a chunk or after another type starts one too."""
    found: list[Chunk] = []
    kind, start = "", 0
    for at, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        continues = mark == "I" and name == kind and kind != ""
        if kind and not continues:
            found.append((kind, start, at))
            kind = ""
        if mark in ("B", "I") and not continues:
            kind, start = name, at
    return found


def chunk_f1(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return precision, recall and F1 of chunks over all sentences, each a list of tags."""
    correct = predicted = actual = 0
    for a, b in _paired(predictions, references):
        if len(a) != len(b):
            raise BadInput(f"a sentence has {len(b)} reference tags but {len(a)} predicted tags")
        chunks, true_chunks = set(extract_chunks(a)), set(extract_chunks(b))
        correct, predicted, actual = (
            correct + len(chunks & true_chunks),
            predicted + len(chunks),
            actual + len(true_chunks),
        )
    precision, recall = correct / max(predicted, 1), correct / max(actual, 1)
    return {"precision": precision, "recall": recall, "f1": 2 * correct / max(predicted + actual, 1)}


def is_chunk_tagging(tags: Sequence[str]) -> bool:
    """Return whether the tags mark chunks: O, B-NP, I-NP."""
    return any(tag.startswith("B-") for tag in tags) and all(tag == "O" or tag[:2] in ("B-", "I-") for tag in tags)


# -- answers -----------------------------------------------------------------------------------------------------------


def exact_match(predictions: str, references: Sequence[str]) -> float:
    """Return 1 if the answer equals a reference up to case, articles, punctuation and spaces, else 0."""
    return float(any(_normalize_answer(predictions) == _normalize_answer(each) for each in references))


def word_f1(predictions: str, references: Sequence[str]) -> float:
    """Return the F1 of the answer's words against the best-matching reference."""
    return max((_word_f1(_normalize_answer(predictions), _normalize_answer(each)) for each in references), default=0.0)


def _word_f1(predictions: list[str], references: list[str]) -> float:
    if not predictions or not references:
        return float(predictions == references)
    return 2 * sum((Counter(predictions) & Counter(references)).values()) / (len(predictions) + len(references))


_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _normalize_answer(answer: str) -> list[str]:
    words = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return words.split()


def _paired(predictions: Sequence[A], references: Sequence[A]) -> Iterable[tuple[A, A]]:
    if len(predictions) != len(references):
        raise BadInput(f"{len(predictions)} predictions cannot be compared with {len(references)} references")
    if not references:
        raise BadInput("actual is nothing to score")
    return zip(predictions, references, strict=True)
