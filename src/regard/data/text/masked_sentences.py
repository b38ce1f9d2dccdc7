"""Masked language modelling on single, independent sentences.

    row    [CLS] sentence [SEP]        without next-sentence prediction; see next_sentence_pairs for running text

Masks are sampled anew in every epoch (token_masking), from (seed, epoch, sentence).
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
    """Settings of the dataset."""

    corpora: tuple[str, ...] = ("tatoeba",)
    max_length: int = 32
    batch_size: int = 512
    lowercase: bool = False

    def load(self, split: str, tokenizer: Tokenizer) -> MaskedSentencesSplit:
        """Return a split as token ids."""
        capacity = self.max_length - 2  # [CLS], [SEP]
        if capacity < 4:
            raise BadInput(f"data.max_length={self.max_length} is too short for a sentence; raise it")
        return MaskedSentencesSplit(
            tokenizer,
            self.read(split),
            [get_corpus(name).follow for name in self.corpora],
            self.max_length,
            self.batch_size,
            capacity,
        )


class MaskedSentencesSplit(NextSentenceSplit):
    """One split as token ids, one sentence per row."""

    def sentence_spans(self, key: int) -> Int[Tensor, "R 3"]:
        begin = torch.arange(len(self))
        return torch.stack([begin, begin + 1, torch.full_like(begin, key)], 1)
