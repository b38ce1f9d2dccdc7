"""Filling in: a text with [MASK] in it, and the words that may stand there.

    fill = Filler(model, text)
    fill(["The [MASK] sat on the [MASK]."], k=3)      of each text, of each mask, the k likeliest, likeliest first

Every mask is guessed by itself, with the others still hidden, as in training. The probabilities are over the whole
vocabulary. A piece that begins with ## goes on with the word before it.

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.tasks.reading import Reader, texts_of

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Guess:
    """What may stand at a mask, as it is written in the vocabulary, its number there, and how likely it is."""

    word: str
    token: int
    probability: float


class Filler(Reader):
    """A model that guesses hidden words, with its vocabulary, to be called."""

    def __init__(self, model: nn.Module, text: Text, longest: int | None = None) -> None:
        if text.mask is None:
            raise BadInput("this vocabulary has no token for a hidden word; a Filler needs one, such as [MASK]")
        super().__init__(model, text, longest)
        self.hidden_by = text.pieces([text.mask])[0]  # "[MASK]"

    def __call__(self, texts: Sequence[str], k: int = 5) -> list[list[list[Guess]]]:
        """Of every text, of every mask in it, the k likeliest words."""
        if k < 1:
            raise BadInput(f"{k} words cannot be guessed; ask for 1 or more")
        rows = [self.encode(text, number) for number, text in enumerate(texts_of(texts), 1)]
        for number, (text, row) in enumerate(zip(texts, rows, strict=True), 1):
            if self.text.mask not in row:
                wanted = f"write it where a word is to be guessed: {text!r}"
                raise BadInput(f"text {number} has no {self.hidden_by}; {wanted}")
        found: list[list[list[Guess]]] = [[] for _ in rows]
        for some, answer in self._rows(rows):
            logits = answer[0] if isinstance(answer, tuple) else answer  # a pretraining head says more than words
            for row, scores in zip(some, logits, strict=True):
                at = [i for i, token in enumerate(rows[row]) if token == self.text.mask]
                found[row] = self._guesses(scores[at].float().softmax(-1), k)
        return found

    def encode(self, text: str, number: int = 1) -> list[int]:
        """The numbers of a text between its marks, [MASK] read as one of them."""
        assert self.text.mask is not None
        parts = self.text.encode(text.split(self.hidden_by))
        ids = parts[0]
        for part in parts[1:]:
            ids = [*ids, self.text.mask, *part]
        if len(ids) + 2 > self.room:
            raise BadInput(
                f"text {number} has {len(ids) + 2} tokens with its marks, this model reads {self.room}: shorten it"
            )
        return self.text.enclose(ids)[0]

    def _guesses(self, shares: torch.Tensor, k: int) -> list[list[Guess]]:
        best = shares.topk(min(k, self.text.size, shares.shape[-1]))
        return [
            [Guess(word, n, p) for word, n, p in zip(self.text.pieces(numbers), numbers, likely, strict=True)]
            for numbers, likely in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def filled(text: str, words: Sequence[str], mark: str = "[MASK]") -> str:
    """The text with these words where its masks were; a piece that begins with ## joins what stands before it."""
    first, *rest = text.split(mark)
    for word, after in zip(words, rest, strict=True):
        first = (first.rstrip() + word[2:] if word.startswith("##") and len(word) > 2 else first + word) + after
    return first
