"""Merge subwords: a map over the words of a text from the map over subword tokens.

    columns    w'_nj = Σ_m w_nm        over the subwords m of word j
    rows       w''_ij = mean_n w'_nj   over the subwords n of word i

Rows keep their sum; heads are merged separately. Compute a rollout over subwords first and merge it then: it is not the
product of merged layers.

Words are those of tokens.word_tokenizer: "don't" and "Hu-Li" are words, a punctuation mark is one by itself. A
vocabulary that does not store spaces (BERT's) stays split at punctuation: don ' t.

Clark, Khandelwal, Levy, Manning: What Does BERT Look At? BlackboxNLP 2019. arXiv:1906.04341
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

SPACE = "▁"
SPACE_MARKING_KINDS = ("bytes", "bpe", "unigram", "char")  # vocabularies whose tokens mark spaces
_LONE = re.compile(r"⟨([0-9a-f]{2})⟩")  # a byte that is not a character by itself


def merge_subwords(trace: Trace, text: Tokenizer) -> Trace:
    """Merge the rows and columns of a trace, labelled with subwords of this vocabulary, into words."""
    if trace.rows is None or trace.columns is None:
        raise BadInput(f"'{trace.name}' has no labels, so its words are unknown; use `Trace.with_labels`.")
    rows, columns = word_spans(trace.rows, text), word_spans(trace.columns, text)
    named = [
        tuple(_name(labels[word.start : word.stop], text) for word in words)
        for labels, words in ((trace.rows, rows), (trace.columns, columns))
    ]
    return replace(merge_tokens(trace, rows, columns), rows=named[0], columns=named[1])


def merge_tokens(trace: Trace, rows: Sequence[range], columns: Sequence[range]) -> Trace:
    """Average groups of neighbouring rows and sum groups of neighbouring columns; labels and gradient are dropped.

    The centres of an aligner move to the same relative position within the merged column.
    """
    weights = trace.operator()
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    down, across = ([len(group) for group in groups] for groups in (rows, columns))
    if (sum(down), sum(across)) != tuple(weights.shape[-2:]):
        raise BadInput(
            f"'{trace.name}' has {weights.shape[-2]} rows and {weights.shape[-1]} columns, but the groups cover "
            f"{sum(down)} and {sum(across)}; label all rows and columns."
        )
    summed = torch.stack([some.sum(-1) for some in weights.split(across, -1)], -1)
    centres = None if trace.centres is None else _mean(_move_centres(trace.centres.to(weights.dtype), across), down)
    bare = replace(trace, rows=None, columns=None, geometry=None, queries=None, gradient=None)
    return replace(bare, weights=_mean(summed, down), centres=centres)


def word_spans(pieces: Sequence[str], text: Tokenizer) -> list[range]:
    """Group subwords (as `Tokenizer.pieces` names them) into words: consecutive ranges that cover all of them.

    Special tokens stand alone; a token that is only a space belongs to the word after it.
    """
    from regard.tokens.word_tokenizer import split_words

    spelled, owners = _spelled(pieces, text)
    first = {owner: at for at, owner in reversed(list(enumerate(owners))) if not spelled[at].isspace()}
    starts, at = set[int](), 0
    for word in split_words(spelled):
        at = spelled.index(word, at)
        starts.add(at)
        at += len(word)
    special = {i for i, piece in enumerate(pieces) if piece in _special_tokens(text)}
    edges = {0, len(pieces)} | special | {i + 1 for i in special}
    for owner in (i for i, at in first.items() if at in starts):
        while owner and text.kind in SPACE_MARKING_KINDS and pieces[owner - 1] == SPACE:
            owner -= 1
        edges.add(owner)
    return [range(begin, end) for begin, end in pairwise(sorted(edges))]


def _spelled(pieces: Sequence[str], text: Tokenizer) -> tuple[str, list[int]]:
    """Return the text that the tokens spell, and for each character the token in which it begins.

    Byte tokens are joined into characters. The unknown token is spelled as a letter, so that an unknown character stays
    inside its word.
    """
    special, unknown = _special_tokens(text), text.pieces([text.unk])[0]
    read = [" " if piece in special else _bare("x" if piece == unknown else piece, text) for piece in pieces]
    raw = [part.encode("utf-8", "surrogateescape") for part in read]
    holder = [i for i, part in enumerate(raw) for _ in part]  # of each byte
    spelled, owners, at = "", list[int](), 0
    for letter in b"".join(raw).decode("utf-8", "surrogateescape"):
        spelled += "x" if _is_lone(letter) else letter
        owners.append(holder[at])
        at += len(letter.encode("utf-8", "surrogateescape"))
    return spelled, owners


def _bare(piece: str, text: Tokenizer) -> str:
    """Return the text of a token with its spaces; single bytes as surrogates."""
    piece = _LONE.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), piece)
    if text.kind in SPACE_MARKING_KINDS:
        return piece.replace(SPACE, " ")
    return piece[2:] if piece.startswith("##") and len(piece) > 2 else f" {piece}"


def _name(pieces: Sequence[str], text: Tokenizer) -> str:
    """Return the readable text of a word."""
    if len(pieces) == 1 and pieces[0] in _special_tokens(text):
        return pieces[0]
    read = "".join(_bare(piece, text) for piece in pieces).encode("utf-8", "surrogateescape")
    letters = read.decode("utf-8", "surrogateescape").strip()
    return "".join(f"⟨{ord(c) - 0xDC00:02x}⟩" if _is_lone(c) else c for c in letters) or SPACE


def _is_lone(letter: str) -> bool:
    return 0xDC80 <= ord(letter) <= 0xDCFF


def _special_tokens(text: Tokenizer) -> set[str]:
    """Return the special tokens that stand for no text (all but the unknown token)."""
    return set(text.pieces(sorted(text._special_ids - ({text.unk} - {text.eos}))))


def _mean(values: Float[Tensor, "B H N M"], sizes: Sequence[int]) -> Float[Tensor, "B H K M"]:
    return torch.stack([some.mean(-2) for some in values.split(list(sizes), -2)], -2)


def _move_centres(centres: Float[Tensor, "B H N P"], sizes: Sequence[int]) -> Float[Tensor, "B H N P"]:
    """Convert positions among subword columns to positions among word columns (column k spans k ± 0.5)."""
    width = centres.new_tensor(sizes)
    begins = width.cumsum(0) - width - 0.5
    word = (torch.searchsorted(begins, centres.contiguous(), right=True) - 1).clamp(0, len(sizes) - 1)
    return word - 0.5 + (centres - begins[word]) / width[word]
