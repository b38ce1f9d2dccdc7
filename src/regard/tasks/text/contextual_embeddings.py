"""Vectors of words in their sentences, and where else a word is used as it is here.

reader = regard.load("runs/elmo/model")
reader.vectors(["She sat on the river bank ."])             one vector a word, of one layer or a mix of them
reader.near("She sat on the river bank .", "bank", among)   the places of other sentences with the most similar vectors
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import Float, Tensor
from regard.data.text.char_sentences import CharSentences
from regard.models.elmo import words_to_char_ids

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Sentence = str | Sequence[str]  # a line, or its words


class ContextNeighbor(NamedTuple):
    """A word in a sentence, and the cosine between its vector and what was asked for, -1 to 1."""

    word: str
    sentence: str
    cosine: float


class ContextualEmbedder:
    """A trained ELMo with its vocabulary."""

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text

    def __call__(self, sentences: Sequence[Sentence]) -> list[Float[Tensor, "N C"]]:
        """The vectors of every sentence's words, the mean of all layers."""
        return self.vectors(sentences)

    @torch.no_grad()
    def layers(self, sentences: Sequence[Sentence], batch_tokens: int = 8192) -> list[Float[Tensor, "J N C"]]:
        """All layers of every sentence's words, some `batch_tokens` words at a time; 0 knows the word alone."""
        cut = [self.words(sentence) for sentence in sentences]
        if not cut:
            return []
        config: Any = self.model.config
        device = next(self.model.parameters()).device
        read = CharSentences(cut, lambda words: words_to_char_ids(words, config), None, False)
        order = torch.argsort(read.flat.lengths, stable=True)
        found: list[Tensor] = [torch.empty(0)] * len(cut)
        longest = max(batch_tokens, int(read.flat.lengths.max()))
        begin = 0
        while begin < len(order):
            end = begin + 1
            while end < len(order) and (end + 1 - begin) * int(read.flat.lengths[order[end]]) <= longest:
                end += 1
            rows = order[begin:end]
            batch = read.collate(rows).to(device)
            layers = self.model(batch.char_ids, batch.words, batch.lengths)
            for i, row in enumerate(rows.tolist()):
                found[row] = layers[:, i, 1 : len(cut[row]) + 1].clone()
            begin = end
        return found

    def vectors(self, sentences: Sequence[Sentence], layer: int | None = None) -> list[Float[Tensor, "N C"]]:
        """The vectors of one layer, or the mean of all of them."""
        config: Any = self.model.config
        if layer is not None and not 0 <= layer <= config.layers:
            raise BadInput(f"there is no layer {layer}; there are 0 (the words alone) to {config.layers}")
        return [x.mean(0) if layer is None else x[layer] for x in self.layers(sentences)]

    def nearest(
        self, sentence: Sentence, word: str, candidates: Sequence[Sentence], k: int = 10, layer: int | None = None
    ) -> list[ContextNeighbor]:
        """The k places of other sentences whose vectors are most like that of `word` (its first place) in this one."""
        words = self.words(sentence)
        if word not in words:
            raise UnknownName(f"there is no '{word}' in the sentence; {did_you_mean(word, set(words))}")
        if k < 1:
            raise BadInput(f"k is {k}; ask for 1 place or more")
        own, *others = self.vectors([words, *candidates], layer)
        cut = [self.words(other) for other in candidates]
        places = [(each, " ".join(row)) for row in cut for each in row]
        if not places:
            return []
        cosines = F.normalize(torch.cat(others), dim=-1) @ F.normalize(own[words.index(word)], dim=0)
        best = cosines.topk(min(k, len(places)))
        found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [ContextNeighbor(places[i][0], places[i][1], cosine) for cosine, i in found]

    def words(self, sentence: Sentence) -> list[str]:
        """The words of a sentence; an empty one is refused."""
        from regard.tokens.word_tokenizer import split_words

        found = split_words(sentence) if isinstance(sentence, str) else list(sentence)
        if not found or not all(isinstance(word, str) and word for word in found):
            raise BadInput(f"a sentence needs at least one word, and no empty ones: {sentence!r:.60}")
        return found
