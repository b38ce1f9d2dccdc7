"""ROUGE of summaries, computed by Google's rouge-score package (``pip install 'regard[rouge]'``).

    rouge1, rouge2    overlap of words, of pairs of words
    rougeL            longest common subsequence of words
    F                 2 P R / (P + R)        P: share of the output's n-grams, R: share of the reference's

Words are runs of a-z and 0-9 after lower-casing; `use_stemmer` applies the Porter stemmer to words of more than three
letters. A corpus's score is the mean over its texts, from 0 to 100.

Lin: ROUGE: A Package for Automatic Evaluation of Summaries. ACL 2004 workshop
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.core.errors import BadInput, Unsupported
from regard.metrics.bleu import Score

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")


def rouge(outputs: Sequence[str], references: Sequence[Sequence[str]], use_stemmer: bool = False) -> dict[str, Score]:
    """Return the mean F1 of each ROUGE type; an output with several references is scored against the best one."""
    if len(outputs) != len(references):
        raise BadInput(f"{len(outputs)} summaries cannot be scored against {len(references)} references")
    if not outputs:
        raise BadInput("there is nothing to score")
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise Unsupported("ROUGE needs rouge-score: pip install 'regard[rouge]'") from None
    scorer = RougeScorer(list(ROUGE_TYPES), use_stemmer=use_stemmer)
    scores = [scorer.score_multi(texts, output) for output, texts in zip(outputs, references, strict=True)]
    signature = f"F1 of words a-z0-9, {'Porter stems' if use_stemmer else 'no stems'}, mean of texts, as rouge_score"
    return {
        kind: Score(100 * sum(each[kind].fmeasure for each in scores) / len(scores), signature, f"{len(scores)} texts")
        for kind in ROUGE_TYPES
    }
