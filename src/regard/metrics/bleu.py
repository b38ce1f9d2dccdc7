"""How good a translation is: BLEU and chrF as sacreBLEU computes them, each with the signature that defines it.

Which tokens are counted moves BLEU by many points, so a number is never given without saying:

    bleu              cased running text, sacreBLEU's own tokeniser (13a)       the number to quote
    bleu_lower        the same without case
    bleu_tokenized    Moses tokens, lower-case, no further tokenisation         the column of published Multi30k results
    chrf              character n-grams, cased running text
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.core.errors import BadInput, RegardError
from regard.data.text import moses


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100, and how it was made."""

    value: float
    signature: str
    detail: str  # n-gram precisions, brevity penalty, lengths

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.signature})"


def bleu(outputs: Sequence[str], references: Sequence[str], tokenise: str = "13a", lower: bool = False) -> Score:
    """Corpus BLEU against one reference each; ``tokenise="none"`` where both are tokenised already."""
    metric = _sacrebleu().BLEU(tokenize=tokenise, lowercase=lower, force=True)
    return _corpus_score(metric, outputs, references)


def bleu_tokenized(outputs: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU of running text over lower-case Moses tokens (needs sacremoses)."""
    return bleu(moses.tokenize(outputs, language), moses.tokenize(references, language), tokenise="none")


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2: the F-score of character n-grams up to 6."""
    return _corpus_score(_sacrebleu().CHRF(), outputs, references)


def _corpus_score(metric: Any, outputs: Sequence[str], references: Sequence[str]) -> Score:
    if len(outputs) != len(references):
        raise BadInput(f"{len(outputs)} translations cannot be scored against {len(references)} references")
    if not outputs:
        raise BadInput("there is nothing to score")
    result = metric.corpus_score(list(outputs), [list(references)])
    return Score(float(result.score), str(metric.get_signature()), str(result))


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError:
        raise RegardError(
            "scoring needs sacrebleu: pip install sacrebleu (or train by the loss alone: train.score_interval=0)"
        ) from None
    return metrics
