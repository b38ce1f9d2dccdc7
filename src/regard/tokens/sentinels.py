"""Sentinels: tokens that stand for a piece that was taken out, so that an output can say which piece it is giving.

    text      Thank you for inviting me to your party last week
    input     Thank you <extra_id_0> me to your party <extra_id_1> week
    output    <extra_id_0> for inviting <extra_id_1> last

They have T5's names, so that its vocabularies bring theirs along; to one learned here they are added behind all others.
Unlike other special tokens they may be read out of a text, where they are asked for: `encode`.

Raffel et al. 2020 (T5), arXiv:1910.10683
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

from tokenizers import Tokenizer

from regard.tokens.text import Text

NAME = "<extra_id_{}>"
MANY = 100  # as T5 has

_READ = re.compile(r"\s*<extra_id_(\d+)>\s*")


def sentinels(text: Text) -> list[int]:
    """The numbers of <extra_id_0>, <extra_id_1> and so on, as many as the vocabulary has."""
    found: list[int] = []
    for n in count():
        number = text._tokenizer.token_to_id(NAME.format(n))
        if number is None:
            return found
        found.append(number)
    raise AssertionError


def with_sentinels(text: Text, many: int = MANY) -> Text:
    """The vocabulary with (at least) so many sentinels."""
    tokenizer = Tokenizer.from_str(text._tokenizer.to_str())
    tokenizer.add_special_tokens([NAME.format(n) for n in range(many)])
    return Text(tokenizer, {role: str(tokenizer.id_to_token(number)) for role, number in text._special.items()})


def encode(text: Text, lines: Sequence[str]) -> list[list[int]]:
    """The numbers of every line; the names of sentinels in it are read as sentinels."""
    known = sentinels(text)
    cut = [_READ.split(line) if known else [line] for line in lines]  # text, number, text, number, ..., text
    pieces = iter(text.encode([piece for line in cut for piece in line[::2]]))
    rows = []
    for line in cut:
        row = list(next(pieces))
        for name in line[1::2]:
            after = next(pieces)
            row += [known[int(name)]] if int(name) < len(known) else text.encode_one(NAME.format(name))
            row += after
        rows.append(row)
    return rows


def spans(text: Text, line: str) -> list[tuple[int, int]]:
    """Where each of those numbers stands in its line, from which character to which (as `Text.spans`)."""
    known, found, at = sentinels(text), list[tuple[int, int]](), 0
    for name in _READ.finditer(line) if known else ():
        found += _moved(text.spans(line[at : name.start()]), at)
        begin, end = name.start() + len(name[0]) - len(name[0].lstrip()), name.start() + len(name[0].rstrip())
        if int(name[1]) < len(known):
            found.append((begin, end))
        else:  # one that the vocabulary lacks is text
            found += _moved(text.spans(NAME.format(name[1])), begin)
        at = name.end()
    return found + _moved(text.spans(line[at:]), at)


def _moved(places: Sequence[tuple[int, int]], by: int) -> list[tuple[int, int]]:
    return [(begin + by, end + by) for begin, end in places]
