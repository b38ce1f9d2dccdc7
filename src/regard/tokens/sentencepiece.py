"""SentencePiece models (.model, .spm) as tokenizers: unigram, bpe and char, with or without byte fallback.

    file         a message of protocol buffers: pieces with scores and types, how they were trained, how text is changed
    text         charsmap, single spaces (if the file says so), "▁" before it (if the file says so), "▁" for every space
    unigram      the split with the highest sum of scores
    bpe          two neighbours are merged if together they are a piece, the one with the highest score first

Ids are those of the file. Libraries that shift or reorder them (XLM-RoBERTa's "fairseq" ids, Marian's vocab.json) have
other ids than their .spm files. Not read: models of whole words, spaces behind words, user-defined pieces of bpe.

Kudo, Richardson: SentencePiece. EMNLP 2018. arXiv:1808.06226
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from regard.core.errors import BadInput, Unsupported

SUFFIXES = (".model", ".spm")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of pieces
UNIGRAM, BPE, WORD, CHAR = range(1, 5)  # types of models
LONGEST_PIECE = 1000  # characters
LONGEST_REPLACEMENT = 200  # bytes of one character in the charsmap
SPACE = "▁"
ROLES = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}  # fields of the trainer's settings: an id, or -1
UNK_FIRST = {"unk": 0, "bos": 1, "eos": 2, "pad": -1}  # without such a field


def read_model(file: Path) -> tuple[HFTokenizer, dict[str, str]]:
    """Return the tokenizer of a SentencePiece model, and the names of its special tokens by role."""
    try:
        fields = [*_fields(file.read_bytes())]
        pieces = [_piece(dict(_fields(value))) for number, value in fields if number == 1]
        trainer, normalizer = (dict(_fields(b"".join(v for n, v in fields if n == number))) for number in (2, 3))
        kind = _number(trainer.get(3, UNIGRAM))
        ids = {role: _number(trainer.get(field, UNK_FIRST[role])) for role, field in ROLES.items()}
        unknown = next((piece for piece, _, of in pieces if of == UNKNOWN), None)
        if unknown is None or len({piece for piece, _, _ in pieces}) < len(pieces):
            raise ValueError("it has no unknown piece, or a piece twice")
    except OSError as error:
        raise BadInput(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, TypeError, struct.error) as error:
        raise BadInput(f"{file} is not a SentencePiece model: {error}") from None
    types = {of for _, _, of in pieces}
    for is_used, what in (
        (kind not in (UNIGRAM, BPE, CHAR), "a model of whole words"),
        (_number(trainer.get(24, 0)), "spaces behind words"),
        (not _number(normalizer.get(5, 1)), "spaces that are not written ▁"),
        (UNUSED in types, "unused pieces"),
        (kind != UNIGRAM and USER_DEFINED in types, "user-defined pieces of bpe"),
    ):
        if is_used:
            raise Unsupported(f"{file} has {what}, which is not read; save a tokenizer.json with transformers instead")
    special = {role: pieces[i][0] for role, i in ids.items() if 0 <= i < len(pieces)}
    tokenizer = HFTokenizer(_build_model(pieces, kind, BYTE in types, unknown))
    has_prefix = bool(_number(normalizer.get(3, 1)))
    steps = [*_charsmap(normalizer.get(2, b""), file)]
    if _number(normalizer.get(4, 1)):
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    steps += [*([normalizers.Prepend(SPACE)] if has_prefix else []), normalizers.Replace(" ", SPACE)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = _pre_tokenizer(pieces)
    back = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*back, *([decoders.Strip(" ", 1, 0)] if has_prefix else [])])
    tokenizer.add_special_tokens([piece for piece, _, of in pieces if of in (CONTROL, UNKNOWN)])
    return tokenizer, special


Piece = tuple[str, float, int]  # text, score, type


def _build_model(pieces: list[Piece], kind: int, byte_fallback: bool, unk: str) -> Any:
    names = [piece for piece, _, _ in pieces]
    if kind == UNIGRAM:
        best = max((score for _, score, of in pieces if of == NORMAL), default=0.0)
        scored = [  # a user-defined piece is better than any split of it
            (piece, len(piece) * best - 0.1 if of == USER_DEFINED else score) for piece, score, of in pieces
        ]
        return models.Unigram(scored, names.index(unk), byte_fallback)
    known = {piece: score for piece, score, of in pieces if of == NORMAL}
    merges = (
        [] if kind == CHAR else [(-score, *pair) for piece, score in known.items() for pair in _pairs(piece, known)]
    )
    ranked = [(first, second) for _, first, second in sorted(merges)]
    vocabulary = {piece: i for i, piece in enumerate(names)}
    return models.BPE(vocabulary, ranked, unk_token=unk, fuse_unk=True, byte_fallback=byte_fallback)


def _pairs(piece: str, known: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of pieces that make up a piece."""
    for at in range(1, len(piece)):
        if piece[:at] in known and piece[at:] in known:
            yield piece[:at], piece[at:]


def _pre_tokenizer(pieces: list[Piece]) -> Any:
    """Return what keeps control pieces that are written out in a text from being read as such, and cuts before spaces,
    which is faster, where no piece crosses one."""
    written = [piece for piece, _, of in pieces if of in (CONTROL, UNKNOWN) and len(piece) > 1]
    first = "|".join(f"{re.escape(piece[0])}(?={re.escape(piece[1:])})" for piece in written)
    steps = [pre_tokenizers.Split(Regex(first), "isolated")] if first else []
    if not any(SPACE in piece[1:] for piece, _, of in pieces if of in (NORMAL, USER_DEFINED)):
        steps.append(pre_tokenizers.Split(SPACE, "merged_with_next"))
    return pre_tokenizers.Sequence(steps)


def _charsmap(content: bytes, file: Path) -> list[Any]:
    """Return the normalizer of a charsmap: the length of a trie, the trie, and what it leads to, between zeros."""
    if not content:
        return []
    if not isinstance(content, bytes) or len(content) < 4:
        raise BadInput(f"{file} is not a SentencePiece model: its charsmap is damaged")
    results = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
    if max(map(len, results)) > LONGEST_REPLACEMENT:
        raise BadInput(f"{file} replaces a character by more than {LONGEST_REPLACEMENT} bytes")
    return [normalizers.Precompiled(content)]


# -- protocol buffers --------------------------------------------------------------------------------------------------


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a message's fields: whole numbers, floats, bytes."""
    if not isinstance(message, bytes):
        raise ValueError("a field has another type than expected")
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value - (1 << 64) if value >= 1 << 63 else value
            continue
        size, at = _varint(message, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, -1), at)
        if size < 0 or at + size > len(message):
            raise ValueError(f"it is damaged at byte {at:,}")
        content, at = message[at : at + size], at + size
        yield number, content if wire == 2 else struct.unpack("<f" if wire == 5 else "<d", content)[0]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        value, at = value | (message[at] & 127) << shift, at + 1
        if message[at - 1] < 128:
            return value, at
    raise ValueError(f"it is damaged at byte {at:,}")


def _piece(fields: dict[int, Any]) -> Piece:
    piece, score, of = fields.get(1, b"").decode("utf-8"), fields.get(2, 0.0), fields.get(3, NORMAL)
    if not piece or len(piece) > LONGEST_PIECE or not isinstance(score, float) or of not in range(1, 7):
        raise ValueError(f"it has a piece that is none: {piece[:40]!r}")
    return piece, score, of


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("a setting is no number")
    return value
