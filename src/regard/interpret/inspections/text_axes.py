"""Axes of text: every token with its characters.

What was typed is cut by the vocabulary, which says where. What a model wrote is numbers: where the vocabulary cuts the
written text in the same way it says so again; else each number is what the text grows by when it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.interpret.inspection import NO_POSITION, Axis, Position

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


def input_positions(text: Tokenizer, ids: Sequence[int], line: str) -> list[Position]:
    """The positions of a line's numbers in it; none where they are not that line's."""
    if text.encode([line])[0] != list(ids):
        return [NO_POSITION] * len(ids)
    return [{"text": [begin, end]} for begin, end in text.offsets(line)]


def output_positions(text: Tokenizer, ids: Sequence[int], line: str, before: Sequence[int] = ()) -> list[Position]:
    """The positions of the numbers that a line was decoded from, where they stand after others (a prompt's)."""
    if not before and text.encode([line])[0] == list(ids):
        return input_positions(text, ids, line)
    first, whole = text.decode([before, [*before, *ids]])
    base = at = len(first)
    positions = list[Position]()
    for many in range(1, len(ids) + 1):
        (grown,) = text.decode([[*before, *ids[:many]]])
        same = _common_prefix(grown, whole)
        begin = same - len(whole[at:same].lstrip() or whole[at:same])
        positions.append({"text": [begin - base, same - base]} if same > at else NO_POSITION)
        at = max(at, same)
    return positions


def _common_prefix(first: str, second: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def shift_position(place: Position, by: int) -> Position:
    """Return a span shifted by some characters."""
    return {"text": [place["text"][0] + by, place["text"][1] + by]} if "text" in place else place


def text_axis(
    name: str,
    text: Tokenizer,
    ids: Sequence[int],
    positions: Sequence[Position],
    line: str,
    marks: tuple[int, int] = (0, 0),
) -> Axis:
    """Return an axis of tokens, of which so many at either end are special tokens without a position."""
    special = {text.pad, text.bos, text.eos, text.unk, text.mask} - {None}
    every = [NO_POSITION] * marks[0] + list(positions) + [NO_POSITION] * marks[1]
    return Axis(name, text.pieces(ids), every, [i in special for i in ids], line)
