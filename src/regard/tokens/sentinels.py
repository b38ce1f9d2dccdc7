"""Sentinels: tokens that mark the spans removed from an input, so that an output can name the span it fills in.

    text      Thank you for inviting me to your party last week
    input     Thank you <extra_id_0> me to your party <extra_id_1> week
    output    <extra_id_0> for inviting <extra_id_1> last

They have T5's names and are part of its vocabularies; to one trained here they are appended. Unlike other special
tokens they may be parsed from text: `encode_with_sentinels`.

Raffel et al. 2020 (T5), arXiv:1910.10683
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

from tokenizers import Tokenizer as HFTokenizer

from regard.tokens.tokenizer import Tokenizer

SENTINEL = "<extra_id_{}>"
NUM_SENTINELS = 100  # as T5 has

_PATTERN = re.compile(r"\s*<extra_id_(\d+)>\s*")


def sentinel_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of <extra_id_0>, <extra_id_1>, ..., as many as the vocabulary has."""
    found: list[int] = []
    for n in count():
        number = tokenizer._tokenizer.token_to_id(SENTINEL.format(n))
        if number is None:
            return found
        found.append(number)
    raise AssertionError


def add_sentinels(tokenizer: Tokenizer, count: int = NUM_SENTINELS) -> Tokenizer:
    """Return the tokenizer with at least `count` sentinels."""
    hf_tokenizer = HFTokenizer.from_str(tokenizer._tokenizer.to_str())
    hf_tokenizer.add_special_tokens([SENTINEL.format(n) for n in range(count)])
    return Tokenizer(
        hf_tokenizer, {role: str(hf_tokenizer.id_to_token(number)) for role, number in tokenizer._special.items()}
    )


def encode_with_sentinels(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    """Encode every line; names of sentinels in it become sentinels."""
    known = sentinel_ids(tokenizer)
    split = [_PATTERN.split(line) if known else [line] for line in lines]  # text, number, text, number, ..., text
    pieces = iter(tokenizer.encode([piece for line in split for piece in line[::2]]))
    rows = []
    for line in split:
        row = list(next(pieces))
        for number in line[1::2]:
            row += [known[int(number)]] if int(number) < len(known) else tokenizer.encode_one(SENTINEL.format(number))
            row += next(pieces)
        rows.append(row)
    return rows


def offsets_with_sentinels(tokenizer: Tokenizer, line: str) -> list[tuple[int, int]]:
    """Return the characters (begin, end) of each token of `encode_with_sentinels`, like `Tokenizer.offsets`."""
    known, found, at = sentinel_ids(tokenizer), list[tuple[int, int]](), 0
    for name in _PATTERN.finditer(line) if known else ():
        found += _shift(tokenizer.offsets(line[at : name.start()]), at)
        begin, end = name.start() + len(name[0]) - len(name[0].lstrip()), name.start() + len(name[0].rstrip())
        if int(name[1]) < len(known):
            found.append((begin, end))
        else:  # not in the vocabulary: text
            found += _shift(tokenizer.offsets(SENTINEL.format(name[1])), begin)
        at = name.end()
    return found + _shift(tokenizer.offsets(line[at:]), at)


def _shift(places: Sequence[tuple[int, int]], by: int) -> list[tuple[int, int]]:
    return [(begin + by, end + by) for begin, end in places]
