"""Sides that are made of text: every token with the characters it stands for.

What was typed is cut by the vocabulary, which says where. What a model wrote is numbers: where the vocabulary cuts the
written text in the same way it says so again; else each number is what the text grows by when it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.interpret.inspection import NO_PLACE, Place, Side

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


def input_places(text: Tokenizer, ids: Sequence[int], line: str) -> list[Place]:
    """The places of a line's numbers in it; none where they are not that line's."""
    if text.encode([line])[0] != list(ids):
        return [NO_PLACE] * len(ids)
    return [{"text": [begin, end]} for begin, end in text.offsets(line)]


def output_places(text: Tokenizer, ids: Sequence[int], line: str, before: Sequence[int] = ()) -> list[Place]:
    """The places of the numbers that a line was decoded from, where they stand after others (a prompt's)."""
    if not before and text.encode([line])[0] == list(ids):
        return input_places(text, ids, line)
    first, whole = text.decode([before, [*before, *ids]])
    base = at = len(first)
    places = list[Place]()
    for many in range(1, len(ids) + 1):
        (grown,) = text.decode([[*before, *ids[:many]]])
        same = _common_prefix(grown, whole)
        begin = same - len(whole[at:same].lstrip() or whole[at:same])
        places.append({"text": [begin - base, same - base]} if same > at else NO_PLACE)
        at = max(at, same)
    return places


def _common_prefix(first: str, second: str) -> int:
    """How many characters two texts have in common from their beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def shift_place(place: Place, by: int) -> Place:
    """The same place so many characters on."""
    return {"text": [place["text"][0] + by, place["text"][1] + by]} if "text" in place else place


def text_axis(
    name: str, text: Tokenizer, ids: Sequence[int], places: Sequence[Place], line: str, marks: tuple[int, int] = (0, 0)
) -> Side:
    """A side of tokens, of which so many at either end are marks that stand nowhere in the text."""
    special = {text.pad, text.bos, text.eos, text.unk, text.mask} - {None}
    every = [NO_PLACE] * marks[0] + list(places) + [NO_PLACE] * marks[1]
    return Side(name, text.pieces(ids), every, [i in special for i in ids], line)
