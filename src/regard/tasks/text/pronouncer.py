"""The pronouncer: words in, sounds out, in the same order.

    say = regard.load("sounds-en")
    say(["xylophone", "read"])                 ["Z AY L AH F OW N", "R EH D"]
    say(["read"], nbest=2)                     [["R EH D", "R IY D"]]
    say.attention("xylophone")                 which letters each sound looked at, to draw

It is a translator from letters to sounds, with all its ways of searching: a word's company never changes how it sounds.
Capitals and accents are taken off, hyphens are left out, and so are the marks of a sentence around a word: "Hello," is
hello. Any other character that the model has never read is refused by name: it has no sound to give it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from torch import nn

from regard.core.errors import BadInput
from regard.tasks.text.translator import Translator

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

PUNCTUATION = '.,;:!?…"“”„«»‹›()[]–—'  # of sentences; an apostrophe belongs to its word
CHARACTER_MAP = str.maketrans(
    {"’": "'", "ʼ": "'", "-": None, "‐": None, "\u00ad": None}
)  # apostrophes; hyphens, seen or not


class Pronouncer(Translator):
    """A model that pronounces, with its vocabulary, to be called.

    An empty word has no sounds. A word of more than `max_length` letters is cut, with a warning, and its parts are
    pronounced one by one. `stress`: whether the model says which vowel is stressed.
    """

    def __init__(self, model: nn.Module, text: Tokenizer, stress: bool = False, max_length: int = 64) -> None:
        super().__init__(model, text, "letters", "sounds", max_length=max_length)
        self.stress = stress

    @cached_property
    def letters(self) -> str:
        """The letters it can read."""
        known = [piece for i, piece in enumerate(self.text.pieces(range(self.text.size))) if i not in self._marks]
        return "".join(sorted(piece for piece in known if len(piece) == 1 and not piece.isupper()))

    @property
    def _marks(self) -> set[int]:
        return {self.text.pad, self.text.bos, self.text.eos, self.text.unk}

    def _named(self, line: str, number: int) -> str:
        from regard.see.token_display import truncate_middle

        return f"the word {truncate_middle(line)!r}"  # a line may hold many words: its number is not that of a word

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        if language == self.source:
            return super()._encode([" ".join(self._spelled(word)) for word in lines], language)
        found = super()._encode(lines, language)
        for line, ids in zip(lines, found, strict=True):
            if self.text.unk in ids:
                raise BadInput(f"{line!r:.60} holds a sound this model does not know; write them as in 'HH AH L OW'")
        return found

    def _spelled(self, word: str) -> str:
        """A word as the model reads it."""
        spelled = normalize_spelling(word)
        if " " in spelled:
            raise BadInput(f"{word!r:.60} is more than one word; give each word by itself")
        if strange := [letter for letter in spelled if letter not in self.letters]:
            what = f"{word!r:.60} holds {strange[0]!r}, for which this model has no sound"
            raise BadInput(f"{what}; it reads {' '.join(self.letters)}")  # apart: ' is one of them, and no quote
        if word.strip() and not spelled:
            raise BadInput(f"{word!r:.60} holds no letter to pronounce")
        return spelled


def normalize_spelling(word: str) -> str:
    """A word without capitals, accents, hyphens and marks around it: "Café!" is cafe, "e-mail" is email."""
    plain = unicodedata.normalize("NFKD", word.strip().strip(PUNCTUATION).casefold().translate(CHARACTER_MAP))
    return "".join(letter for letter in plain if not unicodedata.combining(letter))
