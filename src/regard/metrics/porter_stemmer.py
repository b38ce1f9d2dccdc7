"""Porter's stemmer: endings off, in five steps, so that "connected" and "connections" are one word.

    m       how often vowels are followed by consonants in a stem: [C](VC)^m[V]
    step    endings, longest first; the first that fits decides, and goes if what is left is long enough

The form that NLTK has made usual: a few words are listed, and "y", "ies", "ied", "bli", "fulli" and "logi" have rules
that the paper has not.

Porter: An algorithm for suffix stripping. Program 14(3), 1980
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Rule = tuple[str, str, Callable[[str], bool]]  # ending, what takes its place, what the stem must be like

_LISTED = {
    form: stem
    for stem, forms in {
        "sky": "sky skies", "die": "dying", "lie": "lying", "tie": "tying", "news": "news", "inning": "innings inning",
        "outing": "outings outing", "canning": "cannings canning", "howe": "howe", "proceed": "proceed",
        "exceed": "exceed", "succeed": "succeed",
    }.items()
    for form in forms.split()
}  # fmt: skip


@lru_cache(maxsize=2**16)
def porter_stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in _LISTED:
        return _LISTED[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _y, _second, _third, _fourth, _fifth):
        word = step(word)
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replaced(word, [("sses", "ss", _any), ("ies", "i", _any), ("ss", "ss", _any), ("s", "", _any)])


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        stem = word.removesuffix(ending)
        if stem != word and _has_vowel(stem):
            break
    else:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _doubled(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _short(stem) else stem


def _y(word: str) -> str:
    stem = word[:-1]
    return stem + "i" if word.endswith("y") and len(stem) > 1 and _consonant(stem, len(stem) - 1) else word


def _second(word: str) -> str:
    if word.endswith("alli") and _some(word[:-4]):
        return _second(word[:-4] + "al")
    rules: list[Rule] = [(a, b, _some) for a, b in _SECOND]
    return _replaced(word, [*rules, ("fulli", "ful", _some), ("logi", "log", lambda stem: _some(stem + "l"))])


def _third(word: str) -> str:
    return _replaced(word, [(a, b, _some) for a, b in _THIRD])


def _fourth(word: str) -> str:
    rules: list[Rule] = [(ending, "", _more) for ending in _FOURTH]
    ion: Rule = ("ion", "", lambda stem: _more(stem) and stem[-1] in "st")
    return _replaced(word, [*rules[:11], ion, *rules[11:]])


def _fifth(word: str) -> str:
    if word.endswith("e"):
        stem = word[:-1]
        if _measure(stem) > 1 or (_measure(stem) == 1 and not _short(stem)):
            word = stem
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


_SECOND = [
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"),
]  # fmt: skip
_THIRD = [
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
]  # fmt: skip
_FOURTH = [
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate", "iti", "ous",
    "ive", "ize",
]  # fmt: skip


def _replaced(word: str, rules: list[Rule]) -> str:
    """By the first rule whose ending fits; where its stem will not do, nothing changes."""
    for ending, instead, wanted in rules:
        if word.endswith(ending):
            stem = word[: len(word) - len(ending)]
            return stem + instead if wanted(stem) else word
    return word


def _consonant(word: str, at: int) -> bool:
    if word[at] in "aeiou":
        return False
    return word[at] != "y" or at == 0 or not _consonant(word, at - 1)


def _measure(stem: str) -> int:
    kinds = "".join("c" if _consonant(stem, at) else "v" for at in range(len(stem)))
    return len(re.findall("vc", kinds))


def _any(stem: str) -> bool:
    return True


def _some(stem: str) -> bool:
    return _measure(stem) > 0


def _more(stem: str) -> bool:
    return _measure(stem) > 1


def _has_vowel(stem: str) -> bool:
    return any(not _consonant(stem, at) for at in range(len(stem)))


def _doubled(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _consonant(word, len(word) - 1)


def _short(word: str) -> bool:
    """Ends in consonant, vowel, consonant (not w, x or y); or is a vowel and a consonant."""
    kinds = [_consonant(word, at) for at in range(len(word))]
    if len(word) == 2:
        return kinds == [False, True]
    return kinds[-3:] == [True, False, True] and word[-1] not in "wxy"
