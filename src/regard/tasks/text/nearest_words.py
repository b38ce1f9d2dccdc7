"""Word vectors in use: what is near a word, what is to c as b is to a, the vectors themselves.

    near       cos(v_word, v)               the words of the largest cosine, the word itself left out
    analogy    cos(v_b - v_a + v_c, v)      with all vectors of length one, the three words left out

Mikolov, Yih, Zweig: Linguistic Regularities in Continuous Space Word Representations. NAACL 2013
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput, UnknownName
from regard.core.shapes import Float, Tensor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


class WordNeighbor(NamedTuple):
    """A word and the cosine between its vector and what was asked for, -1 to 1."""

    word: str
    cosine: float


class NearestWords:
    """A trained word2vec with its vocabulary: ``words = regard.load("words-en"); words.near("dog")``."""

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text

    def __call__(self, words: Sequence[str], k: int = 10) -> list[list[WordNeighbor]]:
        """The neighbours of each word."""
        return [self.nearest(word, k) for word in words]

    def nearest(self, word: str, k: int = 10) -> list[WordNeighbor]:
        """The k words whose vectors point most nearly the same way."""
        own = self.word_id(word)
        return self._nearest(self._units[own], k, [own])

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> list[WordNeighbor]:
        """What is to c as b is to a: ``analogy("man", "woman", "king")``."""
        given = [self.word_id(word) for word in (a, b, c)]
        x, y, z = self._units[given]
        return self._nearest(F.normalize(y - x + z, dim=0), k, given)

    def vectors(self, words: Sequence[str]) -> Float[Tensor, "K C"]:
        """The vectors of words, as they were trained."""
        if isinstance(words, str):
            raise BadInput("vectors takes a list of words; for one word give a list of one")
        numbers = torch.tensor([self.word_id(word) for word in words], dtype=torch.long)
        return self._table[numbers]

    def word_id(self, word: str) -> int:
        """The row of a word; an unknown one is an error that offers what is spelled like it."""
        if not isinstance(word, str) or not word.strip():
            raise BadInput("give a word: this one is empty")
        if word in self._numbers:  # as it is spelled there: data that came cut into words hold some that we would cut
            return self._numbers[word]
        found = self.text.encode_one(word)
        if len(found) == 1 and found[0] in self._known:
            return found[0]
        if len(found) > 1:
            raise BadInput(f"'{word}' is {len(found)} words ({', '.join(self.text.pieces(found))}); give one at a time")
        close = get_close_matches(word.lower(), self._spelled, n=4, cutoff=0.6)
        hint = f"spelled like it: {', '.join(close)}" if close else "and none is spelled like it"
        raise UnknownName(f"'{word}' is not among the {len(self._known):,} words of this model; {hint}")

    @property
    def vocabulary(self) -> list[str]:
        """The words there are, the most frequent first."""
        return self._spelled

    @cached_property
    def _numbers(self) -> dict[str, int]:
        from regard.tokens.word_tokenizer import word_ids

        return word_ids(self.text)

    @cached_property
    def _known(self) -> dict[int, str]:
        return {i: word for word, i in self._numbers.items()}

    @cached_property
    def _spelled(self) -> list[str]:
        return [*self._known.values()]

    @property
    def _table(self) -> Tensor:
        table = self.model.get_submodule("embed").weight
        assert isinstance(table, Tensor)
        return table.detach()

    @cached_property
    def _units(self) -> Tensor:
        """All vectors with length one, those of no word with length zero."""
        real = torch.zeros(len(self._table), 1, device=self._table.device)
        real[[*self._known]] = 1
        return F.normalize(self._table.float(), dim=1) * real

    def _nearest(self, wanted: Tensor, k: int, without: Sequence[int]) -> list[WordNeighbor]:
        if k < 1:
            raise BadInput(f"k is {k}; ask for 1 neighbour or more")
        cosines = self._units @ wanted
        left_out = [i for i in range(len(cosines)) if i not in self._known]
        cosines[[*without, *left_out]] = -torch.inf
        best = cosines.topk(min(k, int(cosines.isfinite().sum())))
        return [
            WordNeighbor(self._known[i], c) for c, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
