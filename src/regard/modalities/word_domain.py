"""The domain of texts: the characters and words of the training data.

    k of n words of a text are unknown; an unknown word of held-out text has the probability p
    surprise = -log P(X >= k),  X ~ Binomial(n, p)

Names and rare words are unknown in every text, so one of ten is no surprise and four of five are. A character that is
not in the training data is always noted. The words are stored as a Bloom filter, one for each group of texts (the
languages of a language identifier): a byte for each word, of which one in forty that was never seen passes for known.
With several groups, the one that surprises least counts: a text must be like one of them.

N-grams of characters find other languages as well only with tables of several hundred kilobytes, and cannot say what is
unusual (docs/notes/2026-11-19.md).

Bloom: Space/Time Trade-offs in Hash Coding with Allowable Errors. CACM 13(7), 1970.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from regard.modalities.domain import Domain, quantile

BITS_PER_WORD, HASHES, MIN_BYTES = 8, 5, 128
MIN_COUNT = 2  # of a word in the training data: what occurs once is often misspelt
MAX_CHARACTERS = 10_000  # of a text that are looked at
LISTED = 4  # unknown words or characters that a note names
MAX_BITS = 2**26  # of a stored filter

WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


@dataclass(frozen=True, eq=False)
class WordDomain(Domain):
    """Characters and words of the training data; `unknown` is the share of unknown words in held-out texts."""

    characters: frozenset[str]
    filters: tuple[np.ndarray, ...]  # bytes of Bloom filters
    unknown: float
    ignored: tuple[str, ...] = ()  # strings that are no text, such as [MASK]

    kind = "text"

    @classmethod
    def fit(
        cls,
        about: str,
        groups: Sequence[Sequence[str]],
        held_out: Sequence[str],
        ignored: Sequence[str] = (),
    ) -> Self:
        """Return the domain of the training texts of one or several groups, calibrated on held-out texts."""
        filters = tuple(_bloom_filter(texts) for texts in groups)
        characters = frozenset(character for texts in groups for text in texts for character in text)
        made = cls(about, math.inf, characters, filters, 0.5, tuple(ignored))
        counts = [made._count(text) for text in held_out]
        share = sum(k for k, _ in counts) / max(1, sum(n for _, n in counts))
        rated = cls(about, math.inf, characters, filters, min(0.5, max(1e-4, share)), tuple(ignored))
        return cls(about, quantile(map(rated.surprise, held_out)), characters, filters, rated.unknown, tuple(ignored))

    def surprise(self, value: str) -> float:
        return _binomial_surprise(*self._count(value), self.unknown)

    def describe(self, value: str) -> str:
        text = self._text(value)
        strange = list(dict.fromkeys(each for each in text if each not in self.characters and not each.isspace()))
        found = (
            [f"{_listed(strange)} {'was' if len(strange) == 1 else 'were'} never seen in training"] if strange else []
        )
        unknown, n = self._unknown(text), len(_words(text))
        if _binomial_surprise(len(unknown), n, self.unknown) > self.threshold:
            which = _listed(list(dict.fromkeys(unknown)))
            verb = "is" if len(unknown) == 1 else "are"
            found.append(f"{len(unknown)} of {n} words {verb} not in its training data ({which})")
        if not n and text.strip():
            found.append("it has no words")
        return " and ".join(reversed(found))

    def _text(self, value: str) -> str:
        text = str(value)[:MAX_CHARACTERS]
        for each in self.ignored:
            text = text.replace(each, " ")
        return text

    def _unknown(self, text: str) -> list[str]:
        """Return the words that are unknown in the group that knows most of them."""
        words = _words(text)
        return min(([word for word in words if not _contains(bits, word)] for bits in self.filters), key=len)

    def _count(self, value: str) -> tuple[int, int]:
        text = self._text(value)
        return len(self._unknown(text)), len(_words(text))

    def arrays(self) -> dict[str, np.ndarray]:
        return {f"filter.{number}": each for number, each in enumerate(self.filters)}

    def settings(self) -> dict[str, Any]:
        return {"characters": "".join(sorted(self.characters)), "unknown": self.unknown, "ignored": [*self.ignored]}

    @classmethod
    def restore(
        cls, about: str, threshold: float, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Self:
        filters = tuple(arrays[f"filter.{number}"] for number in range(len(arrays)))
        unknown = float(settings["unknown"])
        if not filters or not 0 < unknown < 1:
            raise ValueError("it has no words")
        for each in filters:
            if each.dtype != np.uint8 or each.ndim != 1 or not 0 < 8 * len(each) <= MAX_BITS:
                raise ValueError("a filter is no row of bytes")
        ignored = tuple(str(each) for each in settings["ignored"] if each)
        return cls(about, threshold, frozenset(settings["characters"]), filters, unknown, ignored)


def _words(text: str) -> list[str]:
    return WORD.findall(text.replace("\u2019", "'").lower())


def _bloom_filter(texts: Iterable[str]) -> np.ndarray:
    counts = Counter(word for text in texts for word in _words(text))
    words = [word for word, count in counts.items() if count >= MIN_COUNT]
    made = np.zeros(max(MIN_BYTES, -(-BITS_PER_WORD * len(words) // 8)), np.uint8)
    for word in words:
        for place in _places(word, 8 * len(made)):
            made[place >> 3] |= 1 << (place & 7)
    return made


def _contains(bits: np.ndarray, word: str) -> bool:
    return all(bits[place >> 3] >> (place & 7) & 1 for place in _places(word, 8 * len(bits)))


def _places(word: str, size: int) -> Iterator[int]:
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    first, step = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
    return ((first + number * step) % size for number in range(HASHES))


def _binomial_surprise(k: int, n: int, p: float) -> float:
    """Return -log P(X >= k) of X ~ Binomial(n, p)."""
    if k <= 0:
        return 0.0
    log_p, log_q = math.log(p), math.log1p(-p)
    terms = [
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q
        for i in range(k, n + 1)
    ]
    most = max(terms)
    return max(0.0, -(most + math.log(sum(math.exp(each - most) for each in terms))))


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - LISTED:,} more" if len(values) > LISTED else ""
    return ", ".join(each if each.isprintable() else repr(each)[1:-1] for each in values[:LISTED]) + more
