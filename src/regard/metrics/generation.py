"""Metrics of generated text: each takes outputs and all references of each output.

    bleu          corpus BLEU, with its signature (metrics.bleu)
    accuracy      the output is exactly a label
    exact_match   exact match and word F1, as in SQuAD (metrics.classification)
    rouge         rouge1, rouge2, rougeL (metrics.rouge)
    per           word accuracy, word error rate and phoneme error rate of pronunciations

Each returns scores by name, from 0 to 100. The first one stands for the task where several tasks are averaged; higher
is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.core.errors import BadInput
from regard.metrics.base import BLEU, Metric, error_rate, score
from regard.metrics.bleu import Score
from regard.metrics.bleu import bleu as corpus_bleu
from regard.metrics.classification import exact_match, word_f1
from regard.metrics.rouge import rouge
from regard.metrics.word_error_rate import count_edits

References = Sequence[Sequence[str]]  # all accepted answers of every output
Scorer = Callable[[Sequence[str], References], dict[str, Score]]


def bleu(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Return cased BLEU against the first reference."""
    return {"bleu": corpus_bleu(outputs, [each[0] for each in references])}


def accuracy(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Return the share of outputs that equal a label exactly."""
    return {
        "accuracy": _mean([output.strip() in each for output, each in _paired(outputs, references)], "the label itself")
    }


def exact_match_and_f1(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Return exact match and word F1, up to case, articles and punctuation."""
    pairs = _paired(outputs, references)
    how = "up to case, articles and punctuation (SQuAD)"
    return {
        "exact_match": _mean([exact_match(a, b) for a, b in pairs], f"equal {how}"),
        "f1": _mean([word_f1(a, b) for a, b in pairs], f"F1 of words {how}"),
    }


def phoneme_error_rate(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Return word accuracy, WER and PER, each against the nearest listed pronunciation."""
    wrong, sounds, whole = 0, 0, list[bool]()
    for output, each in _paired(outputs, references):
        near = min(each, key=lambda sound: (count_edits(output.split(), sound.split()).total, len(sound.split())))
        wrong += count_edits(output.split(), near.split()).total
        sounds += len(near.split())
        whole.append(output.split() == near.split())
    words = _mean(whole, "all sounds right, by any listed pronunciation")
    missed = f"{whole.count(False)} of {len(whole)}"
    error = Score(100 * wrong / max(sounds, 1), "edits / sounds, nearest listed pronunciation", f"{wrong} of {sounds}")
    return {
        "word_accuracy": words,
        "wer": Score(100 - words.value, "words not all right, by any listed pronunciation", missed),
        "per": error,
    }


METRICS: dict[str, Scorer] = {
    "bleu": bleu,
    "accuracy": accuracy,
    "exact_match": exact_match_and_f1,
    "rouge": rouge,
    "per": phoneme_error_rate,
}

_NAMES = {"accuracy": "accuracy", "exact_match": "exact match", "f1": "F1", "word_accuracy": "word accuracy"}
_PERCENT = {key: Metric(key, name, "%", high=100.0) for key, name in _NAMES.items()}

DECLARED: dict[str, tuple[Metric, ...]] = {  # what each scorer returns
    "bleu": (BLEU,),
    "accuracy": (_PERCENT["accuracy"],),
    "exact_match": (_PERCENT["exact_match"], _PERCENT["f1"]),
    "rouge": (score("rouge1", "ROUGE-1"), score("rouge2", "ROUGE-2"), score("rougeL", "ROUGE-L")),
    "per": (_PERCENT["word_accuracy"], error_rate("wer", "WER"), error_rate("per", "PER")),
}


def _paired(outputs: Sequence[str], references: References) -> list[tuple[str, Sequence[str]]]:
    if len(outputs) != len(references):
        raise BadInput(f"{len(outputs)} outputs cannot be scored against {len(references)} references")
    if not outputs:
        raise BadInput("there is nothing to score")
    return list(zip(outputs, references, strict=True))


def _mean(values: Sequence[float], signature: str) -> Score:
    return Score(100 * sum(values) / len(values), signature, f"{sum(values):g} of {len(values)}")
