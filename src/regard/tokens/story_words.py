"""Words of stories: sentences to word ids, and answers as classes.

    ids    0 padding    1 a word never seen    2, 3, ... the answers, then the other words

An answer is a class and a word at once, so that a model may score it by its word vector. Lists ("milk,football") and
paths ("s,s") are answers that occur in no sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor

PAD, UNKNOWN, FIRST_ANSWER = 0, 1, 2
WORD = re.compile(r"\w+(?:['-]\w+)*")
SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True)
class StoryWords:
    """The words that a model knows: `answers` are also its classes, `others` occur in stories and questions only."""

    answers: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, lines: Iterable[str], answers: Iterable[str]) -> Self:
        """Collect the words of lines and the answers."""
        known = set(answers)
        return cls(tuple(sorted(known)), tuple(sorted({word for line in lines for word in split_words(line)} - known)))

    @property
    def size(self) -> int:
        """The number of word ids."""
        return FIRST_ANSWER + len(self.answers) + len(self.others)

    def check_size(self, vocab: int | None) -> None:
        """Raise `BadInput` unless a model has as many word ids, each of another word; None: how many is not known."""
        if vocab is not None and len({*self.answers, *self.others}) + FIRST_ANSWER != vocab:
            raise BadInput(f"The model has {vocab:,} word ids, expected {self.size:,} of different answers and words.")

    def encode(self, lines: Iterable[str]) -> Int[Tensor, "S W"]:
        """Return the word ids of sentences, padded on the right to the longest."""
        ids = {word: i for i, word in enumerate((*self.answers, *self.others), FIRST_ANSWER)}
        rows = [[ids.get(word, UNKNOWN) for word in split_words(line)] for line in lines]
        width = max(map(len, rows), default=0)
        return torch.tensor([row + [PAD] * (width - len(row)) for row in rows], dtype=torch.int64).view(-1, width)

    def unknown(self, lines: Iterable[str]) -> list[str]:
        """Return the words of lines that have no id, each once."""
        known = {*self.answers, *self.others}
        return list(dict.fromkeys(word for line in lines for word in split_words(line) if word not in known))


def check_answers(num_classes: int, vocab: int) -> None:
    """Raise `BadInput` for more answers than word ids."""
    if num_classes > vocab - FIRST_ANSWER:
        raise BadInput(
            f"num_classes must be at most vocab - {FIRST_ANSWER} = {vocab - FIRST_ANSWER}, got {num_classes}"
        )


def split_words(line: str) -> list[str]:
    """Split a sentence into words, in lower case, without punctuation."""
    return WORD.findall(line.lower())


def word_spans(line: str) -> list[tuple[int, int]]:
    """Return the first and the last character (exclusive) of every word of `split_words`."""
    return [found.span() for found in WORD.finditer(line)]


def split_sentences(text: str) -> list[str]:
    """Split running text into its sentences."""
    return [line.strip() for line in SENTENCE.findall(text) if split_words(line)]
