"""Chunking sentences by writing them down with brackets: sentences in, parses out.

    parse = Chunker(model, text, kinds=["NP", "VP", ...])
    parse(["He reckons the deficit will narrow ."])           ["(NP He ) (VP reckons ) (NP the deficit ) ..."]
    parse.tags([["He", "reckons"]])                           [["B-NP", "B-VP"]]

The model writes one token after another and decides only what the rules leave open (data.bracketed.Walk): words come
out as they went in, in order, and brackets always match. The likeliest decision is taken each time. Every sentence is
written by itself, whoever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.data.ragged import RaggedTensor
from regard.data.text.chunking_seq2seq import BracketParser, ChunkingSymbols, encode_sentence_words
from regard.metrics.classification import extract_chunks

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

BATCH_SIZE = 256  # sentences written side by side
Sentence = str | Sequence[str]


class Chunker:
    """A model that parses, with its vocabulary and the kinds of chunks it knows, to be called."""

    def __init__(self, model: nn.Module, text: Tokenizer, kinds: Sequence[str], speech: Sequence[str] = ()) -> None:
        self.model, self.text, self.kinds, self.speech = model.eval(), text, list(kinds), list(speech)
        self.symbols = ChunkingSymbols(text.size, tuple(kinds), tuple(speech))

    def __call__(self, sentences: Sequence[Sentence], speech: Sequence[Sentence] | None = None) -> list[str]:
        """Each sentence with brackets round its chunks."""
        rows = self._split(sentences)
        return [bracket_chunks(words, tags) for words, tags in zip(rows, self.tags(rows, speech), strict=True)]

    def tags(self, sentences: Sequence[Sentence], speech: Sequence[Sentence] | None = None) -> list[list[str]]:
        """A tag for each word of each sentence; `speech`: parts of speech, where the model was trained to read them."""
        rows = self._split(sentences)
        kinds = self._speech(rows, speech)
        walks = [
            BracketParser(self.symbols, pieces, self.text.eos) for pieces in encode_sentence_words(self.text, rows)
        ]
        order = sorted(range(len(rows)), key=lambda n: -sum(map(len, walks[n].pieces)))  # alike in length together
        with torch.inference_mode():
            for at in range(0, len(order), BATCH_SIZE):
                some = order[at : at + BATCH_SIZE]
                self._write([walks[n] for n in some], [kinds[n] for n in some])
        return [walk.tags for walk in walks]

    def _write(self, walks: list[BracketParser], speech: list[Sequence[str]]) -> None:
        """Let the model decide its way through these sentences, one token of each at a time."""
        model: Any = self.model
        device = next(model.parameters()).device
        source = RaggedTensor.from_rows(
            [self.symbols.source(w.pieces, s, self.text.eos) for w, s in zip(walks, speech, strict=True)]
        )
        rows, lengths = source.pad(torch.arange(len(walks)), self.text.pad, 8)
        capacity = max(sum(map(len, walk.pieces)) + 3 * len(walk.pieces) for walk in walks) + 1
        tokens, state = model.start(rows.to(device), lengths.to(device), capacity=capacity)
        base, many = self.symbols.base, self.symbols.decisions
        while live := [n for n, walk in enumerate(walks) if not walk.ended]:
            logits, state = model.step(tokens, state)
            scores: Any = None  # read only where somebody has to decide
            written = [self.text.eos] * len(walks)
            for n in live:
                token = walks[n].next_forced()
                if token is None:
                    scores = logits[:, 0, base : base + many].tolist() if scores is None else scores
                    token = walks[n].decide(max(walks[n].options(), key=scores[n].__getitem__))
                written[n] = token
            tokens = torch.tensor(written, device=device)[:, None]
            if 4 * len([n for n in live if not walks[n].ended]) <= 3 * len(walks):
                keep = [n for n, walk in enumerate(walks) if not walk.ended]
                if not keep:
                    return
                picked = torch.tensor(keep, device=device)
                state = model.select(state, picked, torch.zeros(len(keep), 1, dtype=torch.long, device=device))
                tokens, walks = tokens[picked], [walks[n] for n in keep]

    def _split(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        if isinstance(sentences, str):
            raise BadInput("give a list of sentences, not a single one")
        rows = [each.split() if isinstance(each, str) else list(each) for each in sentences]
        for number, words in enumerate(rows, 1):
            if not words or not all(isinstance(word, str) and word.strip() for word in words):
                raise BadInput(f"sentence {number} has no words to put brackets round; give at least one")
        return rows

    def _speech(self, rows: list[list[str]], speech: Sequence[Sentence] | None) -> list[Sequence[str]]:
        if not self.speech:
            return [()] * len(rows)
        if speech is None:
            raise BadInput("this model reads parts of speech too: give speech=, a tag for each word")
        kinds = [each.split() if isinstance(each, str) else list(each) for each in speech]
        if [len(each) for each in kinds] != [len(words) for words in rows]:
            raise BadInput("parts of speech do not fit the sentences; give one for each word of each")
        return list(kinds)


def bracket_chunks(words: Sequence[str], tags: Sequence[str]) -> str:
    """A sentence with brackets round its chunks: ``(NP He ) (VP reckons ) .``"""
    opens = {begin: kind for kind, begin, _ in extract_chunks(tags)}
    ends = {end - 1 for *_, end in extract_chunks(tags)}
    parts = []
    for n, word in enumerate(words):
        parts += [f"({opens[n]}"] if n in opens else []
        parts += [word, ")"] if n in ends else [word]
    return " ".join(parts)
