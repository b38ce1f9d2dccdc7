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
from regard.data.corpora import corpus
from regard.data.documents import Documents, Pages

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Sentences(Documents):
    """Which sentences, how they are written as numbers, how long a row is, and how many go into a batch."""

    corpora: tuple[str, ...] = ("tatoeba",)
    length: int = 32
    rows: int = 512
    lower: bool = False

    def load(self, split: str, text: Text) -> Lines:
        """A part as numbers."""
        room = self.length - 2  # [CLS], [SEP]
        if room < 4:
            raise BadInput(f"a row of {self.length} tokens has no room for a sentence; raise data.length")
        return Lines(
            text, self.read(split), [corpus(name).follow for name in self.corpora], self.length, self.rows, room
        )


class Lines(Pages):
    """One part as numbers, a sentence a row."""

    def stretches(self, key: int) -> Int[Tensor, "R 3"]:
        """Every sentence by itself."""
        begin = torch.arange(len(self))
        return torch.stack([begin, begin + 1, torch.full_like(begin, key)], 1)
