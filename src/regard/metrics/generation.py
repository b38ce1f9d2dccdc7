"""How good written answers are: one function for each way of scoring, from outputs and all that counts as right.

    bleu        corpus BLEU, with its signature (metrics.bleu)
    accuracy    the answer is the label, to the letter
    exact       exact match, and the F1 of words, as SQuAD counts them (metrics.classification)
    rouge       rouge1, rouge2, rougeL (metrics.rouge)
    phonemes    words whose sounds are all right, the share of words that are not, and of sounds that are not

Each gives scores by name, from 0 to 100. The first is the one that counts when several tasks are put into one number;
the higher the better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regard.core.errors import BadInput
from regard.metrics.bleu import Score
from regard.metrics.bleu import bleu as corpus_bleu
from regard.metrics.classification import exact_match, word_f1
from regard.metrics.rouge import rouge
from regard.metrics.word_error_rate import count_edits

References = Sequence[Sequence[str]]  # of every output, all that counts as right
Metric = Callable[[Sequence[str], References], dict[str, Score]]


def bleu(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Cased BLEU of running text, against the first reference."""
    return {"bleu": corpus_bleu(outputs, [each[0] for each in references])}


def accuracy(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """The share of outputs that are a right label; anything else, however near, is wrong."""
    return {
        "accuracy": _mean([output.strip() in each for output, each in _paired(outputs, references)], "the label itself")
    }


def exact_match_and_f1(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Exact match and F1 of words, but for case, articles and signs."""
    pairs = _paired(outputs, references)
    how = "but for case, articles and signs (SQuAD)"
    return {
        "exact_match": _mean([exact_match(a, b) for a, b in pairs], f"equal {how}"),
        "f1": _mean([word_f1(a, b) for a, b in pairs], f"F1 of words {how}"),
    }


def phoneme_error_rate(outputs: Sequence[str], references: References) -> dict[str, Score]:
    """Words that are all right; word error and phoneme error, each against the nearest right pronunciation."""
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


METRICS: dict[str, Metric] = {
    "bleu": bleu,
    "accuracy": accuracy,
    "exact_match": exact_match_and_f1,
    "rouge": rouge,
    "per": phoneme_error_rate,
}


def _paired(outputs: Sequence[str], references: References) -> list[tuple[str, Sequence[str]]]:
    if len(outputs) != len(references):
        raise BadInput(f"{len(outputs)} outputs cannot be scored against {len(references)} answers")
    if not outputs:
        raise BadInput("there is nothing to score")
    return list(zip(outputs, references, strict=True))


def _mean(values: Sequence[float], signature: str) -> Score:
    return Score(100 * sum(values) / len(values), signature, f"{sum(values):g} of {len(values)}")
