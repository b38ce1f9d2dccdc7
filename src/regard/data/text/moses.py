"""The "tokenised, lower-case" form of text that published Multi30k results are measured on.

Lower case, Moses punctuation normalisation, Moses tokenisation without splitting at hyphens and without escaping
(``&apos;`` and the like would only lengthen the text): on test_2016 this gives the published 12,103 German tokens.
Needs the optional package sacremoses.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from regard.core.errors import RegardError


def tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Return lines as lower-case tokens separated by spaces."""
    normaliser, tokeniser, _ = _tools(language)
    return [
        tokeniser.tokenize(normaliser.normalize(line.lower()), escape=False, return_str=True) if line.strip() else ""
        for line in lines
    ]


def detokenize(lines: Iterable[str], language: str) -> list[str]:
    """Return tokenised lines as running text (still lower case)."""
    _, _, joiner = _tools(language)
    return [joiner.detokenize(line.split(), unescape=False) if line.strip() else "" for line in lines]


def is_available() -> bool:
    """Return whether sacremoses is installed."""
    return find_spec("sacremoses") is not None


@lru_cache(maxsize=8)
def _tools(language: str) -> tuple[Any, Any, Any]:
    try:
        import sacremoses
    except ImportError:
        raise RegardError(
            'Moses tokenisation needs sacremoses: pip install "regard[moses]" (or train on raw text, data.style=raw)'
        ) from None
    return (
        sacremoses.MosesPunctNormalizer(lang=language),
        sacremoses.MosesTokenizer(lang=language),
        sacremoses.MosesDetokenizer(lang=language),
    )
