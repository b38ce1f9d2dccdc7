"""Changes to pairs of sentences, anew in every epoch, so that a translator copes with what people type.

    change        of the pairs that allow it   example                                          on
    names         2/3                          Tom is from Boston. -> Olga Costa is from Lima.  both sides
    numbers       1/2                          I am 25. -> I am 38.                             both sides
    contraction   1/3                          I don't know. -> I do not know. (or back)        the source
    apostrophe    1/12                         I don't know. -> I don’t know.                   the source
    case          1/3                          Where is Tom? -> where is Tom?, where is tom?    the source
    end mark      1/12, changed case 1/2       Where is Tom? -> Where is Tom; ! <-> .           both sides

Corpora of sentences begin with a capital, end with a mark and know few names: a model that has seen nothing else
answers "hello" with nonsense and makes a word of "Anna". A name is changed where both sides have it, equally often;
one in four new ones is made up of syllables, so that names nobody listed are copied too. Elisions of French follow the
new name (de Tom, d'Anna), and so does the genitive of German (Toms, Agnes').

Everything is drawn from a generator that the caller seeds by row and epoch.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

_NAMES = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split("\n\n")
WOMEN, MEN, PLACES, SURNAMES = (part.split() for part in _NAMES)
NAMES = {name: names for names in (WOMEN, MEN, PLACES) for name in names}

_CONSONANTS, _VOWELS = "bdfghjklmnprstvwz", "aeiou"  # of names that are made up
_ENDINGS = ("n", "r", "s", "l", "k", "m", "t", "sh", "na", "ra", "ko", "ki", "to", "nd", "ssa", "lle")

_INVERTED = r"(?! (?:i|you|he|she|it|we|they|there|this|that|tom|mary)\b)"  # "don't you" has no long form
_VERBS = "do|does|did|is|are|was|were|have|has|had|would|could|should|must"
_NOT_IS = r"(?! (?:been|got|had|become|\w+ed)\b)"  # "it's been" is "it has been"
_HERE = "what|where|who|how|that|it|here|there|he|she"
LONG_FORMS = [
    (re.compile(short, re.I), long)
    for short, long in (
        (rf"\b({_VERBS})n['’]t\b{_INVERTED}", r"\1 not"),
        (rf"\b(ca)n['’]t\b{_INVERTED}", r"\1nnot"),
        (rf"\b(w)on['’]t\b{_INVERTED}", r"\1ill not"),
        (r"\b(i)['’]m\b", r"\1 am"),
        (r"\b(you|we|they)['’]re\b", r"\1 are"),
        (r"\b(i|you|he|she|it|we|they)['’]ll\b", r"\1 will"),
        (r"\b(i|you|we|they)['’]ve\b", r"\1 have"),
        (r"\b(i|you|he|she|we|they)['’]d\b(?= like\b)", r"\1 would"),
        (rf"\b({_HERE})['’]s\b{_NOT_IS}", r"\1 is"),
    )
]
SHORT_FORMS = [
    (re.compile(long, re.I), short)
    for long, short in (
        (rf"\b({_VERBS}) not\b", r"\1n't"),
        (r"\b(ca)n(?: ?)not\b", r"\1n't"),
        (r"\b(w)ill not\b", r"\1on't"),
        (r"\b(i) am\b(?= \w)", r"\1'm"),
        (r"\b(you|we|they) are\b(?= \w)", r"\1're"),
        (r"\b(i|you|he|she|it|we|they) will\b(?= \w)", r"\1'll"),
        (r"\b(i|you|we|they) have\b(?= (?:been|\w+ed)\b)", r"\1've"),
        (r"\b(i|you|he|she|we|they) would\b(?= like\b)", r"\1'd"),
        (rf"\b({_HERE}) is\b(?= \w)", r"\1's"),
    )
]
_END = re.compile(r"[\s\u00a0\u202f]*([.!?])$")
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"(?<![\d.,:])[1-9]\d{1,3}(?![\d.,:]*\d|\w)")


def augment_pair(source: str, target: str, draw: random.Random, languages: tuple[str, str]) -> tuple[str, str]:
    """Return a pair with some changes; those of the source's wording are made to English only."""
    source, target = replace_names(source, target, draw, languages)
    if draw.random() < 1 / 2:
        source, target = replace_numbers(source, target, draw)
    english = languages[0] == "en"
    if english and draw.random() < 1 / 3:
        for pattern, form in draw.choice((LONG_FORMS, SHORT_FORMS)):
            source = pattern.sub(form, source)
    if draw.random() < 1 / 12:
        source = source.replace("'", "’")
    is_casual = draw.random() < 1 / 3
    if draw.random() < (1 / 2 if is_casual else 1 / 12):
        source, target = change_end(source, target, draw, languages)
    if is_casual:
        source = source.lower() if draw.random() < 1 / 2 else source[:1].lower() + source[1:]
    return source, target


def change_end(source: str, target: str, draw: random.Random, languages: tuple[str, str]) -> tuple[str, str]:
    """Return both sides without the marks at their ends; at times . and ! take each other's place instead."""
    sides = (source, target)
    ends = [_END.search(side) for side in sides]
    if any(end is None or side[: end.start()].endswith(".") for end, side in zip(ends, sides, strict=True)):
        return source, target
    stems = [side[: end.start()] for end, side in zip(ends, sides, strict=True) if end]
    marks = {end[1] for end in ends if end}
    if marks in ({"."}, {"!"}) and draw.random() < 1 / 4:
        other = {language: "." if "!" in marks else " !" if language == "fr" else "!" for language in languages}
        stems = [stem + other[language] for stem, language in zip(stems, languages, strict=True)]
    return stems[0], stems[1]


def replace_numbers(source: str, target: str, draw: random.Random) -> tuple[str, str]:
    """Replace numbers of two to four digits that both sides have once by others with as many."""
    for number in dict.fromkeys(_NUMBER.findall(source)):
        pattern = re.compile(rf"(?<!\d){number}(?!\d)")
        if len(pattern.findall(source)) == 1 == len(pattern.findall(target)):
            other = str(draw.randrange(max(13, 10 ** (len(number) - 1)), 10 ** len(number)))
            source, target = pattern.sub(other, source), pattern.sub(other, target)
    return source, target


def replace_names(source: str, target: str, draw: random.Random, languages: tuple[str, str]) -> tuple[str, str]:
    """Replace names of people and places that both sides have equally often by others of their kind."""
    found = [name for name in dict.fromkeys(_WORD.findall(source)) if name in NAMES and draw.random() < 2 / 3]
    sides, patterns = (source, target), [_name_pattern(found, language) for language in languages]
    counts = [Counter(match[2] for match in p.finditer(side)) for p, side in zip(patterns, sides, strict=True)]
    new = {name: new_name(name, draw) for name in found if counts[0][name] == counts[1][name]}

    def inflect(match: re.Match[str]) -> str:
        before, name, after = match[1] or "", new.get(match[2]), match[3] or ""
        if name is None:
            return match[0]
        if before:  # French: de Tom, d'Anna
            before = before.rstrip(" e'’") + ("'" if name[0] in "AEIOUÉ" else "e ")
        if after:  # German: Toms, Agnes'
            after = "'" if name[-1] in "sxzß" else "s"
        return before + name + after

    return patterns[0].sub(inflect, source), patterns[1].sub(inflect, target)


def _name_pattern(names: list[str], language: str) -> re.Pattern[str]:
    """Return a pattern with three groups: what elides before a name, a name, the ending of its genitive."""
    before = r"\b((?:d|qu|lorsqu|puisqu|jusqu)(?:e |['’]))?" if language == "fr" else r"(?<!\w)()"
    after = r"(s|['’])?(?!\w)" if language == "de" else r"()(?!\w)"
    return re.compile(f"{before}({'|'.join(names) or '(?!)'}){after}")


def new_name(name: str, draw: random.Random) -> str:
    """Return another name of the same kind: listed or made up, a person's at times with a surname."""
    if draw.random() < 1 / 4:
        syllables = [draw.choice(_CONSONANTS) + draw.choice(_VOWELS) for _ in range(draw.choice((1, 1, 2)))]
        other = ("".join(syllables) + draw.choice(_ENDINGS)).capitalize()
    else:
        other = draw.choice(NAMES[name])
    is_person = NAMES[name] is not PLACES
    return f"{other} {draw.choice(SURNAMES)}" if is_person and draw.random() < 1 / 10 else other
