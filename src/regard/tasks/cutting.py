"""Cutting: a text as the pieces and numbers that a model reads it as.

    cut(regard.load("fill-en"), "The [MASK] barks.")      [CLS] The [MASK] barks . [SEP], with their numbers
    cut(Text.load("tokenizer.json"), "The dog barks.")    a vocabulary by itself adds no marks

Every kind of model reads in its own way: what stands before and after the text, which names in it are read as one token
([MASK], <extra_id_0>), whether words are cut one by one, what is done to the text before. Nothing goes through the
model, and nothing is too long to be cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from regard.core.errors import Unsupported
from regard.tokens.text import Text

Spans = list[tuple[int, int]]


class Piece(NamedTuple):
    """One token: as it can be read, its number, from which character of the text to which it stands.

    `span` is None of a token that the model adds, and where it reads another text than the one that was given (without
    accents, say). `unknown`: the vocabulary has no token for what stands there.
    """

    piece: str
    id: int
    span: tuple[int, int] | None
    added: bool = False
    unknown: bool = False


def cut(reader: Any, line: str) -> list[Piece]:
    """The pieces of a text as a model with its vocabulary, or a vocabulary by itself, reads them."""
    way = _way(reader)
    if way is None:
        raise Unsupported(f"a {type(reader).__name__} reads no text by a vocabulary: there are no tokens to show")
    row = way(reader, line)
    text: Text = reader if isinstance(reader, Text) else reader.text
    found = zip(text.pieces([number for number, *_ in row]), row, strict=True)
    return [Piece(piece, n, span, added, n == text.unk and not added) for piece, (n, span, added) in found]


def reads(reader: Any) -> bool:
    """Whether what was loaded reads text by a vocabulary."""
    return _way(reader) is not None


Row = list[tuple[int, tuple[int, int] | None, bool]]  # number, span, whether it was added


def _way(reader: Any) -> Callable[[Any, str], Row] | None:
    """How what was loaded reads a text; None: not at all."""
    from regard.tasks.chunker import Chunker
    from regard.tasks.filler import Filler
    from regard.tasks.neighbours import Words
    from regard.tasks.pronouncer import Pronouncer
    from regard.tasks.reading import Reader
    from regard.tasks.tagger import Tagger
    from regard.tasks.text_writer import TextToText
    from regard.tasks.translator import Translator
    from regard.tasks.writer import Writer

    ways: dict[type, Callable[[Any, str], Row]] = {  # of a kind and what it is made of, the kind comes first
        Text: _plain,
        Filler: _filled,
        Tagger: _tagged,
        Reader: lambda reader, line: _between(reader.text, _plain(reader.text, line)),
        Pronouncer: _spelled,
        TextToText: _asked,
        Translator: _translated,
        Chunker: _chunked,
        Writer: lambda reader, line: _plain(reader.text, line),
        Words: lambda reader, line: _plain(reader.text, line),
    }
    return next((way for kind, way in ways.items() if isinstance(reader, kind)), None)


def _row(numbers: Sequence[int], spans: Sequence[tuple[int, int] | None]) -> Row:
    return [(number, span, False) for number, span in zip(numbers, spans, strict=True)]


def _plain(text: Text, line: str) -> Row:
    return _row(text.encode_one(line), text.spans(line))


def _between(text: Text, row: Row) -> Row:
    """[CLS] text [SEP]."""
    return [(text.bos, None, True), *row, (text.eos, None, True)]


def _ended(text: Text, row: Row) -> Row:
    return [*row, (text.eos, None, True)]


def _filled(filler: Any, line: str) -> Row:
    return _between(filler.text, _row(filler.numbers(line), filler.spans(line)))


def _tagged(tagger: Any, line: str) -> Row:
    return _between(tagger.text, [token for word in _word_by_word(tagger.text, line) for token in word])


def _chunked(chunker: Any, line: str) -> Row:
    """Each word after its place; the end."""
    if chunker.speech:
        raise Unsupported("this model reads parts of speech beside the words: its tokens cannot be had of a text alone")
    row: Row = []
    for place, word in enumerate(_word_by_word(chunker.text, line)):
        row += [(chunker.symbols.place(place), None, True), *word]
    return _ended(chunker.text, row)


def _word_by_word(text: Text, line: str) -> list[Row]:
    """What stands between spaces, each cut by itself; a word of no pieces is the unknown one."""
    rows = []
    for word in re.finditer(r"\S+", line):
        found = _plain(text, word.group()) or [(text.unk, (0, len(word.group())), False)]
        rows.append([(number, _moved(span, word.start()), added) for number, span, added in found])
    return rows


def _moved(span: tuple[int, int] | None, by: int) -> tuple[int, int] | None:
    return None if span is None else (span[0] + by, span[1] + by)


def _translated(translator: Any, line: str) -> Row:
    from regard.data import moses
    from regard.tasks.translator import clean

    shown = clean(line, 1)
    if translator.style == "moses":
        (shown,) = moses.tokenise([shown], translator.source)
    text = translator.text
    return _ended(text, _row(text.encode_one(shown), _back(text.spans(shown), shown, line)))


def _asked(model: Any, line: str) -> Row:
    """Where the vocabulary has sentinels, their names are read as such."""
    from regard.tasks.translator import clean
    from regard.tokens.sentinels import encode, spans

    shown, text = clean(line, 1), model.text
    return _ended(text, _row(encode(text, [shown])[0], _back(spans(text, shown), shown, line)))


def _spelled(pronouncer: Any, line: str) -> Row:
    """A token a letter."""
    from regard.tasks.translator import clean

    letters, text = pronouncer._spelled(clean(line, 1)), pronouncer.text
    spans = [(at, at + 1) for at in range(len(letters))]
    return _ended(text, _row(text.encode_one(" ".join(letters)), _back(spans, letters, line)))


def _back(spans: Spans, shown: str, line: str) -> Sequence[tuple[int, int] | None]:
    """Spans of the text that a model reads as spans of the line it was made of: the same but for space and capitals.

    Where more was changed than that, nothing says what stood where: all are None.
    """
    if shown == line:
        return spans
    places, at, last = list[int](), 0, max(len(line) - 1, 0)
    for letter in shown:
        if letter.isspace():
            places.append(min(at, last))
            at += at < len(line) and _blank(line[at])
            continue
        while at < len(line) and _blank(line[at]):
            at += 1
        if at == len(line) or letter not in (line[at], line[at].lower()):
            return [None] * len(spans)
        places.append(at)
        at += 1
    return [(places[begin], places[end - 1] + 1) for begin, end in spans]


def _blank(letter: str) -> bool:
    """Space, or what is read as space."""
    return letter.isspace() or not letter.isprintable()
