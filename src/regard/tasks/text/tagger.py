"""Tagging words: sentences in, a tag for each word out.

    tag = Tagger(model, text, labels=["B-NP", "I-NP", "O", ...])
    tag(["He reckons the deficit will narrow ."])                     [["B-NP", "B-VP", "B-NP", ...]]

A sentence is a list of words, or a text whose words have spaces between them. Every sentence is read by itself; one
that is longer than the model reads is cut between words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from regard.core.errors import BadInput
from regard.data.text.tagged_sentences import encode_sentences
from regard.tasks.text.encoder_base import EncoderPredictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


class Tagger(EncoderPredictor):
    """A model that tags words, with its vocabulary and its tags, to be called."""

    def __init__(self, model: nn.Module, text: Tokenizer, labels: Sequence[str], max_length: int | None = None) -> None:
        super().__init__(model, text, max_length)
        self.labels = list(labels)

    def __call__(self, sentences: Sequence[str | Sequence[str]]) -> list[list[str]]:
        """A tag for each word of each sentence."""
        if isinstance(sentences, str):
            raise BadInput("give a list of sentences, not a single one")
        split = [each.split() if isinstance(each, str) else list(each) for each in sentences]
        for number, words in enumerate(split, 1):
            if not words or not all(isinstance(word, str) for word in words):
                raise BadInput(f"sentence {number} has no words to tag; give at least one")
        if not split:
            return []
        parts = [
            (n, row, places)
            for n, cut in enumerate(encode_sentences(self.text, split, self.room))
            for row, places in cut
        ]
        tags: dict[int, list[str]] = {}  # by row
        for rows, logits in self._rows([row for _, row, _ in parts]):
            for row, best in zip(rows, logits.argmax(-1).tolist(), strict=True):
                tags[row] = [self.labels[best[place]] for place in parts[row][2]]
        found: list[list[str]] = [[] for _ in split]
        for row, (sentence, *_) in enumerate(parts):
            found[sentence] += tags[row]
        return found
