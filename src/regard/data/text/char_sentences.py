"""Sentences with the letters of their words: batches for models that read words by their spelling.

    sentence    <s>  the  dog  runs  </s>            each word as its index in the batch's list of distinct words
    char_ids    the distinct words of the batch, each once, as bytes between two marks
    targets     the sentence as token ids; -100 beyond its end

Sentences of similar length are batched together (data.batching.TokenBatches). A batch has three to four times fewer
distinct words than words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from regard.core.shapes import Int, Tensor
from regard.data.base import TensorBatch
from regard.data.batching import BatchStream, TokenBatches
from regard.data.ragged import RaggedTensor
from regard.data.shards.token_shards import IGNORE_INDEX

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

CharEncoder = Callable[[Sequence[str]], Tensor]  # words -> character ids, U L

BEGIN, END = "<s>", "</s>"


@dataclass(frozen=True, eq=False)
class CharBatch(TensorBatch):
    """A batch of sentences, padded on the right."""

    char_ids: Int[Tensor, "U L"]
    words: Int[Tensor, "B N"]  # rows of `char_ids`
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B N"]

    def rows(self, n: int) -> CharBatch:
        """Return the first n sentences (the list of words stays)."""
        return CharBatch(self.char_ids, self.words[:n], self.lengths[:n], self.targets[:n])


class CharSentences:
    """Sentences as indices of their distinct words, with the character ids and token id of each word."""

    def __init__(
        self, sentences: Sequence[Sequence[str]], spelling: CharEncoder, tokenizer: Tokenizer | None, lower: bool
    ) -> None:
        types = {BEGIN: 0, END: 1}
        rows = [[0, *(types.setdefault(word, len(types)) for word in words), 1] for words in sentences]
        self.flat = RaggedTensor.from_rows(rows)
        self.letters = spelling([*types])
        self.numbers = torch.zeros(len(types), dtype=torch.long)
        if tokenizer is not None:
            from regard.tokens.word_tokenizer import word_ids

            known = word_ids(tokenizer)
            found = [known.get(word.lower() if lower else word, tokenizer.unk) for word in types]
            self.numbers = torch.tensor([tokenizer.bos, tokenizer.eos, *found[2:]])

    def __len__(self) -> int:
        return len(self.flat)

    def stream(self, tokens: int, seed: int) -> BatchStream[CharBatch]:
        """Return endless training batches of about `tokens` words."""
        lengths = self.flat.lengths
        return BatchStream(
            lambda epoch: TokenBatches(lengths, tokens=tokens, seed=seed, epoch=epoch),
            self.collate,
            count_predicted_words,
        )

    def eval_batches(self, tokens: int, max_rows: int | None = None) -> Iterator[CharBatch]:
        """Yield every sentence once, in batches of similar length, in a fixed order."""
        rows = (
            torch.arange(len(self))
            if max_rows is None or max_rows >= len(self)
            else torch.arange(max_rows) * len(self) // max_rows
        )
        for some in TokenBatches(self.flat.lengths[rows], tokens=tokens):
            yield self.collate(rows[some])

    def collate(self, rows: Int[Tensor, " B"]) -> CharBatch:
        types, lengths = self.flat.pad(rows, 0)
        beyond = torch.arange(types.shape[1]) >= lengths[:, None]
        different, words = types.unique(return_inverse=True)
        return CharBatch(
            self.letters[different], words, lengths, self.numbers[types].masked_fill_(beyond, IGNORE_INDEX)
        )


def count_predicted_words(batch: CharBatch) -> int:
    """Return the number of predicted words: all but the first forwards, all but the last backwards."""
    return 2 * int((batch.lengths - 1).sum())
