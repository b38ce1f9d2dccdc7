"""Porter's stemmer: English words without their endings, so that "runs", "running" and "run" count as one.

A word is [C](VC)^m[V], C and V runs of consonants and vowels, y a vowel behind a consonant. Five steps remove or
replace the longest ending of a list, where what stays before it is long enough (m), has a vowel, or ends in a certain
way. Stems are no words: "happily" becomes "happili".

Porter: An Algorithm for Suffix Stripping. Program 14(3), 1980
"""

from __future__ import annotations

import re
from functools import lru_cache

# Steps 2, 3 and 4: an ending, and what replaces it.
_STEP2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "abli": "able",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
}
_STEP3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate"),
    *("iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=2**16)
def porter_stem(word: str) -> str:
    """Return the stem of a word in lower case; words of one or two letters stay."""
    if len(word) <= 2:
        return word
    word = _plurals_and_participles(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_longest(_replace_longest(word, _STEP2), _STEP3)
    if (ending := _longest(word, _STEP4)) and _measure(stem := word[: -len(ending)]) > 1:
        word = stem if ending != "ion" or stem.endswith(("s", "t")) else word
    if word.endswith("e"):
        stem = word[:-1]
        word = stem if _measure(stem) > 1 or (_measure(stem) == 1 and not _ends_cvc(stem)) else word
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _plurals_and_participles(word: str) -> str:
    """Steps 1a and 1b: plurals, -ed and -ing."""
    for ending, new in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            word = word[: -len(ending)] + new
            break
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    ending = "ed" if word.endswith("ed") else "ing" if word.endswith("ing") else ""
    if not ending or not _has_vowel(word[: -len(ending)]):
        return word
    word = word[: -len(ending)]
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and not _is_vowel(word, len(word) - 1):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_cvc(word) else word


def _replace_longest(word: str, endings: dict[str, str]) -> str:
    ending = _longest(word, endings)
    return word[: -len(ending)] + endings[ending] if ending and _measure(word[: -len(ending)]) > 0 else word


def _longest(word: str, endings: dict[str, str] | tuple[str, ...]) -> str:
    return max((each for each in endings if word.endswith(each)), key=len, default="")


def _is_vowel(word: str, i: int) -> bool:
    return word[i] in "aeiou" or (word[i] == "y" and i > 0 and not _is_vowel(word, i - 1))


def _has_vowel(stem: str) -> bool:
    return any(_is_vowel(stem, i) for i in range(len(stem)))


def _measure(stem: str) -> int:
    """Return m: how often a consonant follows a vowel."""
    return len(re.findall("vc", "".join("v" if _is_vowel(stem, i) else "c" for i in range(len(stem)))))


def _ends_cvc(stem: str) -> bool:
    """Whether a word ends in consonant, vowel, and a consonant other than w, x, y."""
    if len(stem) < 3 or stem[-1] in "wxy":
        return False
    return [_is_vowel(stem, len(stem) - n) for n in (3, 2, 1)] == [False, True, False]
