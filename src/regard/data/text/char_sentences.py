"""Sentences with the letters of their words: batches for models that read words by their spelling.

    sentence    <s>  the  dog  runs  </s>            each word as its index in the batch's list of distinct words
    char_ids    the distinct words of the batch, each once, as bytes between two marks
    targets     the sentence as token ids; -100 beyond its end

Sentences of similar length are batched together (data.batching.TokenBatches). A batch has three to four times fewer
distinct words than words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from regard.core.shapes import Int, Tensor
from regard.data.base import DatasetSplit, TensorBatch
from regard.data.batching import TokenBatches
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


class CharSentences(DatasetSplit[CharBatch]):
    """Sentences as indices of their distinct words, with the character ids and token id of each word.

    A training batch has about `batch_tokens` words. Without a tokenizer all targets are 0.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[str]],
        spell: CharEncoder,
        tokenizer: Tokenizer | None = None,
        lowercase: bool = False,
        batch_tokens: int = 4096,
    ) -> None:
        types = {BEGIN: 0, END: 1}
        rows = [[0, *(types.setdefault(word, len(types)) for word in words), 1] for words in sentences]
        self.words, self.batch_tokens = RaggedTensor.from_rows(rows), batch_tokens
        self.char_ids = spell([*types])
        self.token_ids = torch.zeros(len(types), dtype=torch.long)
        if tokenizer is not None:
            from regard.tokens.word_tokenizer import word_ids

            ids = word_ids(tokenizer)
            found = [ids.get(word.lower() if lowercase else word, tokenizer.unk) for word in types]
            self.token_ids = torch.tensor([tokenizer.bos, tokenizer.eos, *found[2:]])

    def __len__(self) -> int:
        return len(self.words)

    def contents(self) -> Iterable[Tensor]:
        return self.words.values, self.words.lengths, self.char_ids, self.token_ids

    def order(self, seed: int, epoch: int) -> TokenBatches:
        return TokenBatches(self.words.lengths, tokens=self.batch_tokens, seed=seed, epoch=epoch)

    def count(self, batch: CharBatch) -> int:
        return count_predicted_words(batch)

    def eval_batches(self, tokens: int, max_rows: int | None = None) -> Iterator[CharBatch]:
        """Yield every sentence once (or `max_rows`, spread evenly), in batches of similar length, in a fixed order."""
        rows = torch.arange(len(self))
        if max_rows is not None and max_rows < len(self):
            rows = torch.arange(max_rows) * len(self) // max_rows
        for numbers in TokenBatches(self.words.lengths[rows], tokens=tokens):
            yield self.collate(rows[numbers])

    def collate(self, rows: Int[Tensor, " B"]) -> CharBatch:
        types, lengths = self.words.pad(rows, 0)
        is_padding = torch.arange(types.shape[1]) >= lengths[:, None]
        distinct, words = types.unique(return_inverse=True)
        targets = self.token_ids[types].masked_fill_(is_padding, IGNORE_INDEX)
        return CharBatch(self.char_ids[distinct], words, lengths, targets)


def count_predicted_words(batch: CharBatch) -> int:
    """Return the number of predicted words: all but the first forwards, all but the last backwards."""
    return 2 * int((batch.lengths - 1).sum())
