"""One sentence a row, with words to be guessed: for text whose sentences have nothing to do with one another.

    row    [CLS] sentence [SEP]        nobody asks what follows; see data.documents for text that goes on

Masks are drawn anew in every epoch (data.masking), from (seed, epoch, sentence).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.text.corpora import get_corpus
from regard.data.text.next_sentence_pairs import NextSentencePairs, NextSentenceSplit

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskedSentences(NextSentencePairs):
    """Which sentences, how they are written as numbers, how long a row is, and how many go into a batch."""

    corpora: tuple[str, ...] = ("tatoeba",)
    max_length: int = 32
    batch_size: int = 512
    lowercase: bool = False

    def load(self, split: str, tokenizer: Tokenizer) -> MaskedSentencesSplit:
        """A part as numbers."""
        room = self.max_length - 2  # [CLS], [SEP]
        if room < 4:
            raise BadInput(f"a row of {self.max_length} tokens has no room for a sentence; raise data.max_length")
        return MaskedSentencesSplit(
            tokenizer,
            self.read(split),
            [get_corpus(name).follow for name in self.corpora],
            self.max_length,
            self.batch_size,
            room,
        )


class MaskedSentencesSplit(NextSentenceSplit):
    """One part as numbers, a sentence a row."""

    def sentence_spans(self, key: int) -> Int[Tensor, "R 3"]:
        """Every sentence by itself."""
        begin = torch.arange(len(self))
        return torch.stack([begin, begin + 1, torch.full_like(begin, key)], 1)
