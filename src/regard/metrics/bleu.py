"""BLEU and chrF of translations, computed by sacreBLEU and reported with its signature.

BLEU depends on the tokenisation by many points, so each score says which one it uses:

    bleu              cased text, sacreBLEU's 13a tokeniser                     the number to quote
    bleu_lower        the same, lower-cased
    bleu_tokenized    lower-cased Moses tokens, no further tokenisation         as in published Multi30k results
    chrf              character n-grams, cased text
    bleu_orders       BLEU-1 to BLEU-4 of captions against several references, as the text comes, without smoothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.core.errors import BadInput, RegardError
from regard.data.text import moses


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100 and the signature that defines it."""

    value: float
    signature: str
    detail: str  # n-gram precisions, brevity penalty, lengths

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def bleu(outputs: Sequence[str], references: Sequence[str], tokenise: str = "13a", lower: bool = False) -> Score:
    """Return corpus BLEU against one reference each; use ``tokenise="none"`` for text that is already tokenised."""
    metric = _sacrebleu().BLEU(tokenize=tokenise, lowercase=lower, force=True)
    return _corpus_score(metric, outputs, references)


def bleu_tokenized(outputs: Sequence[str], references: Sequence[str], language: str) -> Score:
    """Return BLEU over lower-cased Moses tokens (needs sacremoses)."""
    return bleu(moses.tokenize(outputs, language), moses.tokenize(references, language), tokenise="none")


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Return corpus chrF2, the F-score of character n-grams up to 6."""
    return _corpus_score(_sacrebleu().CHRF(), outputs, references)


def bleu_orders(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Score]:
    """Return bleu1 to bleu4 of tokenised outputs, each against all its references: n-grams up to 1, 2, 3 and 4.

    The brevity penalty takes the reference whose length is nearest, the shorter of two. Nothing is smoothed, so without
    a single match of some order the score is zero.
    """
    most = max(map(len, references), default=0)
    streams = [[each[k] if k < len(each) else None for each in references] for k in range(most)]
    found = {}
    for order in range(1, 5):
        how = _sacrebleu().BLEU(tokenize="none", smooth_method="none", max_ngram_order=order, force=True)
        found[f"bleu{order}"] = _corpus_score(how, outputs, *streams)
    return found


def _corpus_score(metric: Any, outputs: Sequence[str], *references: Sequence[str | None]) -> Score:
    many = len(references[0]) if references else 0
    if len(outputs) != many:
        raise BadInput(f"{len(outputs)} translations cannot be scored against {many} references")
    if not outputs:
        raise BadInput("there is nothing to score")
    result = metric.corpus_score(list(outputs), [list(stream) for stream in references])
    return Score(float(result.score), str(metric.get_signature()), str(result))


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise RegardError(
            "scoring needs sacrebleu: pip install sacrebleu (or train by the loss alone: train.score_interval=0)"
        ) from None
    return metrics
