"""Whole words: a map over the words of a text, out of the map over the pieces that a vocabulary cuts them into.

    columns    w'_nj = Σ_m w_nm        over the pieces m of word j: it is looked at as much as all its pieces are
    rows       w''_ij = mean_n w'_nj   over the pieces n of word i: it looks where its pieces look, as a mean

So a row still sums to what it did: where every piece gives away one, every word does. Heads stay apart. A rollout is
taken over pieces and joined then, which is not the product of joined layers.

A word is what the tokens room calls one (tokens.word_tokenizer): "don't" and "Hu-Li" are words, a sign is one by itself. Where a
vocabulary forgets spaces (BERT's), what it cut apart at a sign stays apart: don ' t.

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
SPACE_MARKING_KINDS = ("bytes", "bpe", "unigram", "char")  # vocabularies whose pieces say where a space is
_LONE = re.compile(r"⟨([0-9a-f]{2})⟩")  # a byte that is no character by itself


def merge_subwords(trace: Trace, text: Tokenizer) -> Trace:
    """A trace whose rows and columns are named by pieces of this vocabulary, over whole words."""
    if trace.rows is None or trace.columns is None:
        raise BadInput(f"'{trace.name}' has no names, so nothing says which pieces make a word; label it")
    rows, columns = word_spans(trace.rows, text), word_spans(trace.columns, text)
    named = [
        tuple(_name(side[word.start : word.stop], text) for word in of)
        for side, of in ((trace.rows, rows), (trace.columns, columns))
    ]
    return replace(merge_tokens(trace, rows, columns), rows=named[0], columns=named[1])


def merge_tokens(trace: Trace, rows: Sequence[range], columns: Sequence[range]) -> Trace:
    """A trace with neighbouring rows made one by their mean, neighbouring columns by their sum; its names are gone.

    Where an aligner had centres, they stand as far into a word as they stood into its pieces. A gradient is dropped.
    """
    weights = trace.operator()
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    down, across = ([len(group) for group in groups] for groups in (rows, columns))
    if (sum(down), sum(across)) != tuple(weights.shape[-2:]):
        raise BadInput(
            f"'{trace.name}' has {weights.shape[-2]} rows and {weights.shape[-1]} columns, the words have {sum(down)} "
            f"and {sum(across)} pieces: label it with all of them"
        )
    summed = torch.stack([some.sum(-1) for some in weights.split(across, -1)], -1)
    centres = None if trace.centres is None else _mean(_within(trace.centres.to(weights.dtype), across), down)
    bare = replace(trace, rows=None, columns=None, geometry=None, queries=None, gradient=None)
    return replace(bare, weights=_mean(summed, down), centres=centres)


def word_spans(pieces: Sequence[str], text: Tokenizer) -> list[range]:
    """Which of these pieces (as `Text.pieces` names them) make each word: stretches that cover all. Marks stand alone.

    A piece begins a word where its first letter does; one that is only a space goes with what comes after it.
    """
    from regard.tokens.word_tokenizer import split_words

    spelled, owners = _spelled(pieces, text)
    first = {owner: at for at, owner in reversed(list(enumerate(owners))) if not spelled[at].isspace()}
    starts, at = set[int](), 0
    for word in split_words(spelled):
        at = spelled.index(word, at)
        starts.add(at)
        at += len(word)
    marks = {i for i, piece in enumerate(pieces) if piece in _marks(text)}
    edges = {0, len(pieces)} | marks | {i + 1 for i in marks}
    for owner in (i for i, at in first.items() if at in starts):
        while owner and text.kind in SPACE_MARKING_KINDS and pieces[owner - 1] == SPACE:
            owner -= 1
        edges.add(owner)
    return [range(begin, end) for begin, end in pairwise(sorted(edges))]


def _spelled(pieces: Sequence[str], text: Tokenizer) -> tuple[str, list[int]]:
    """The text that pieces spell, and for each of its letters the piece in which it begins.

    Lone bytes are put together, over as many pieces as a letter has. What is unknown is spelled as a letter: it goes on
    with its word where letters are unknown, and is a word where words are.
    """
    marks, unknown = _marks(text), text.pieces([text.unk])[0]
    read = [" " if piece in marks else _bare("x" if piece == unknown else piece, text) for piece in pieces]
    raw = [part.encode("utf-8", "surrogateescape") for part in read]
    holder = [i for i, part in enumerate(raw) for _ in part]  # of each byte
    spelled, owners, at = "", list[int](), 0
    for letter in b"".join(raw).decode("utf-8", "surrogateescape"):
        spelled += "x" if _is_lone(letter) else letter
        owners.append(holder[at])
        at += len(letter.encode("utf-8", "surrogateescape"))
    return spelled, owners


def _bare(piece: str, text: Tokenizer) -> str:
    """A piece with a space where it has a mark of one, or where its vocabulary means one; lone bytes as such."""
    piece = _LONE.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), piece)
    if text.kind in SPACE_MARKING_KINDS:
        return piece.replace(SPACE, " ")
    return piece[2:] if piece.startswith("##") and len(piece) > 2 else f" {piece}"


def _name(pieces: Sequence[str], text: Tokenizer) -> str:
    """A word as it can be read."""
    if len(pieces) == 1 and pieces[0] in _marks(text):
        return pieces[0]
    read = "".join(_bare(piece, text) for piece in pieces).encode("utf-8", "surrogateescape")
    letters = read.decode("utf-8", "surrogateescape").strip()
    return "".join(f"⟨{ord(c) - 0xDC00:02x}⟩" if _is_lone(c) else c for c in letters) or SPACE


def _is_lone(letter: str) -> bool:
    return 0xDC80 <= ord(letter) <= 0xDCFF


def _marks(text: Tokenizer) -> set[str]:
    """The tokens that stand for no text; the unknown one does."""
    return set(text.pieces(sorted(text._special_ids - ({text.unk} - {text.eos}))))


def _mean(values: Float[Tensor, "B H N M"], sizes: Sequence[int]) -> Float[Tensor, "B H K M"]:
    return torch.stack([some.mean(-2) for some in values.split(list(sizes), -2)], -2)


def _within(centres: Float[Tensor, "B H N P"], sizes: Sequence[int]) -> Float[Tensor, "B H N P"]:
    """Places among pieces as places among words: a word reaches half a column to either side, as its pieces did."""
    width = centres.new_tensor(sizes)
    begins = width.cumsum(0) - width - 0.5
    word = (torch.searchsorted(begins, centres.contiguous(), right=True) - 1).clamp(0, len(sizes) - 1)
    return word - 0.5 + (centres - begins[word]) / width[word]
