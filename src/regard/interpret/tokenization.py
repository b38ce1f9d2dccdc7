"""Tokenization: a text as the tokens and ids that a model reads.

    cut(regard.load("fill-en"), "The [MASK] barks.")      [CLS] The [MASK] barks . [SEP], with their numbers
    cut(Text.load("tokenizer.json"), "The dog barks.")    a vocabulary by itself adds no marks

Models differ in the special tokens before and after the text, in names that are read as one token ([MASK],
<extra_id_0>), in whether words are tokenized one by one, and in how the text is normalised. The model does not run, and
texts of any length are tokenized.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from regard.core.errors import Unsupported
from regard.tokens.tokenizer import Tokenizer

Spans = list[tuple[int, int]]


class TokenInfo(NamedTuple):
    """One token: its text, its id, and its span of characters.

    `span` is None for tokens that the model adds, and where normalisation changed the text (removed accents, say).
    `unknown`: the vocabulary has no token for this text.
    """

    piece: str
    id: int
    span: tuple[int, int] | None
    added: bool = False
    unknown: bool = False


def tokenize(reader: Any, line: str) -> list[TokenInfo]:
    """The pieces of a text as a model with its vocabulary, or a vocabulary by itself, reads them."""
    way = _tokenizer_of(reader)
    if way is None:
        raise Unsupported(f"a {type(reader).__name__} reads no text by a vocabulary: there are no tokens to show")
    row = way(reader, line)
    text: Tokenizer = reader if isinstance(reader, Tokenizer) else reader.text
    found = zip(text.pieces([number for number, *_ in row]), row, strict=True)
    return [TokenInfo(piece, n, span, added, n == text.unk and not added) for piece, (n, span, added) in found]


def can_tokenize(reader: Any) -> bool:
    """Whether what was loaded reads text by a vocabulary."""
    return _tokenizer_of(reader) is not None


Row = list[tuple[int, tuple[int, int] | None, bool]]  # number, span, whether it was added


def _tokenizer_of(reader: Any) -> Callable[[Any, str], Row] | None:
    """Return the function that tokenizes a text for a predictor or model; None if it reads no text."""
    from regard.tasks.text.chunking import Chunker
    from regard.tasks.text.encoder_base import EncoderPredictor
    from regard.tasks.text.language_modeling import TextGenerator
    from regard.tasks.text.masked_lm import FillMask
    from regard.tasks.text.pronunciation import Pronouncer
    from regard.tasks.text.tagging import Tagger
    from regard.tasks.text.text_to_text import TextToTextGenerator
    from regard.tasks.text.translation import Translator
    from regard.tasks.text.word2vec import NearestWords

    ways: dict[type, Callable[[Any, str], Row]] = {  # of a kind and what it is made of, the kind comes first
        Tokenizer: _plain,
        FillMask: _fill_mask_row,
        Tagger: _tagger_row,
        EncoderPredictor: lambda reader, line: _enclose(reader.text, _plain(reader.text, line)),
        Pronouncer: _pronouncer_row,
        TextToTextGenerator: _text_to_text_row,
        Translator: _translator_row,
        Chunker: _chunker_row,
        TextGenerator: lambda reader, line: _plain(reader.text, line),
        NearestWords: lambda reader, line: _plain(reader.text, line),
    }
    return next((way for kind, way in ways.items() if isinstance(reader, kind)), None)


def _row(numbers: Sequence[int], spans: Sequence[tuple[int, int] | None]) -> Row:
    return [(number, span, False) for number, span in zip(numbers, spans, strict=True)]


def _plain(text: Tokenizer, line: str) -> Row:
    return _row(text.encode_one(line), text.offsets(line))


def _enclose(text: Tokenizer, row: Row) -> Row:
    """[CLS] text [SEP]."""
    return [(text.bos, None, True), *row, (text.eos, None, True)]


def _append_eos(text: Tokenizer, row: Row) -> Row:
    return [*row, (text.eos, None, True)]


def _fill_mask_row(filler: Any, line: str) -> Row:
    return _enclose(filler.text, _row(filler.token_ids(line), filler.spans(line)))


def _tagger_row(tagger: Any, line: str) -> Row:
    return _enclose(tagger.text, [token for word in _word_by_word(tagger.text, line) for token in word])


def _chunker_row(chunker: Any, line: str) -> Row:
    """Each word after its place; the end."""
    if chunker.speech:
        raise Unsupported("this model reads parts of speech beside the words: its tokens cannot be had of a text alone")
    row: Row = []
    for place, word in enumerate(_word_by_word(chunker.text, line)):
        row += [(chunker.symbols.marker(place), None, True), *word]
    return _append_eos(chunker.text, row)


def _word_by_word(text: Tokenizer, line: str) -> list[Row]:
    """Tokenize every word by itself; a word without tokens is the unknown token."""
    rows = []
    for word in re.finditer(r"\S+", line):
        found = _plain(text, word.group()) or [(text.unk, (0, len(word.group())), False)]
        rows.append([(number, _shift_span(span, word.start()), added) for number, span, added in found])
    return rows


def _shift_span(span: tuple[int, int] | None, by: int) -> tuple[int, int] | None:
    return None if span is None else (span[0] + by, span[1] + by)


def _translator_row(translator: Any, line: str) -> Row:
    from regard.data.text import moses
    from regard.tasks.text.translation import clean_line

    shown = clean_line(line, 1)
    if translator.style == "moses":
        (shown,) = moses.tokenize([shown], translator.source)
    text = translator.text
    return _append_eos(text, _row(text.encode_one(shown), _spans_in_original(text.offsets(shown), shown, line)))


def _text_to_text_row(model: Any, line: str) -> Row:
    """Read the names of sentinels as one token if the vocabulary has them."""
    from regard.tasks.text.translation import clean_line
    from regard.tokens.sentinels import encode_with_sentinels, offsets_with_sentinels

    shown, text = clean_line(line, 1), model.text
    return _append_eos(
        text,
        _row(
            encode_with_sentinels(text, [shown])[0],
            _spans_in_original(offsets_with_sentinels(text, shown), shown, line),
        ),
    )


def _pronouncer_row(pronouncer: Any, line: str) -> Row:
    """A token a letter."""
    from regard.tasks.text.translation import clean_line

    letters, text = pronouncer._spelled(clean_line(line, 1)), pronouncer.text
    spans = [(at, at + 1) for at in range(len(letters))]
    return _append_eos(text, _row(text.encode_one(" ".join(letters)), _spans_in_original(spans, letters, line)))


def _spans_in_original(spans: Spans, shown: str, line: str) -> Sequence[tuple[int, int] | None]:
    """Spans of the text that a model reads as spans of the line it was made of: the same but for space and capitals.

    Where more was changed than that, nothing says what stood where: all are None.
    """
    if shown == line:
        return spans
    positions, at, last = list[int](), 0, max(len(line) - 1, 0)
    for letter in shown:
        if letter.isspace():
            positions.append(min(at, last))
            at += at < len(line) and _is_blank(line[at])
            continue
        while at < len(line) and _is_blank(line[at]):
            at += 1
        if at == len(line) or letter not in (line[at], line[at].lower()):
            return [None] * len(spans)
        positions.append(at)
        at += 1
    return [(positions[begin], positions[end - 1] + 1) for begin, end in spans]


def _is_blank(letter: str) -> bool:
    """Space, or what is read as space."""
    return letter.isspace() or not letter.isprintable()
