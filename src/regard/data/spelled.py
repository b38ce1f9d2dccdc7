"""Sentences with the letters of their words: batches for models that read words by their spelling.

    sentence    <s>  the  dog  runs  </s>            of every word its number in the batch's list of different words
    spelled     the different words of the batch, each once, as bytes between two marks
    targets     the sentence in numbers of the vocabulary; -100 beyond its end

Sentences of about the same length stand together (data.batching.TokenBatches). A batch has three to four times fewer
different words than words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.core.shapes import Int, Tensor
from regard.data.batching import Stream, TokenBatches
from regard.data.flat import Flat
from regard.data.shards import NOTHING

if TYPE_CHECKING:
    from regard.tokens.text import Text

Spelling = Callable[[Sequence[str]], Tensor]  # words -> their letters in numbers, U L

BEGIN, END = "<s>", "</s>"


class Spelled(NamedTuple):
    """A batch of sentences, padded on the right."""

    spelled: Int[Tensor, "U L"]
    words: Int[Tensor, "B N"]  # rows of `spelled`
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B N"]

    def to(self, device: torch.device | str) -> Spelled:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Spelled(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Spelled:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Spelled(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Spelled:
        """Only the first n sentences (the list of words stays as it is)."""
        return Spelled(self.spelled, self.words[:n], self.lengths[:n], self.targets[:n])


class SpelledSentences:
    """Sentences as numbers of their different words, and both readings of each word: its letters, its number."""

    def __init__(self, sentences: Sequence[Sequence[str]], spelling: Spelling, text: Text | None, lower: bool) -> None:
        types = {BEGIN: 0, END: 1}
        rows = [[0, *(types.setdefault(word, len(types)) for word in words), 1] for words in sentences]
        self.flat = Flat.of(rows)
        self.letters = spelling([*types])
        self.numbers = torch.zeros(len(types), dtype=torch.long)
        if text is not None:
            from regard.tokens.words import numbers

            known = numbers(text)
            found = [known.get(word.lower() if lower else word, text.unk) for word in types]
            self.numbers = torch.tensor([text.bos, text.eos, *found[2:]])

    def __len__(self) -> int:
        return len(self.flat)

    def stream(self, tokens: int, seed: int) -> Stream[Spelled]:
        """Training batches without end, of about so many words."""
        lengths = self.flat.lengths
        return Stream(
            lambda epoch: TokenBatches(lengths, tokens=tokens, seed=seed, epoch=epoch), self.collate, predicted
        )

    def in_order(self, tokens: int, most: int | None = None) -> Iterator[Spelled]:
        """Every sentence once, batches of like lengths, in an order that is always the same."""
        rows = torch.arange(len(self)) if most is None or most >= len(self) else torch.arange(most) * len(self) // most
        for some in TokenBatches(self.flat.lengths[rows], tokens=tokens):
            yield self.collate(rows[some])

    def collate(self, rows: Int[Tensor, " B"]) -> Spelled:
        """These sentences as a batch."""
        types, lengths = self.flat.padded(rows, 0)
        beyond = torch.arange(types.shape[1]) >= lengths[:, None]
        different, words = types.unique(return_inverse=True)
        return Spelled(self.letters[different], words, lengths, self.numbers[types].masked_fill_(beyond, NOTHING))


def predicted(batch: Spelled) -> int:
    """How many words are predicted: all but the first forwards, all but the last backwards."""
    return 2 * int((batch.lengths - 1).sum())
