"""Tokens in as they are written, text out as soon as it is certain.

    tokens       ⟨c3⟩  ⟨bc⟩ber         byte pairs: the first is half a character
    text         "\\ufffd"  "über"       so nothing is said after the first token, and "über" after the second
    stop "END"   "... E"               might become END: the E waits

What has been said never changes. A text ends before the first stop string that appears in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"  # what a decoder gives for a part of a character
CONTEXT_TOKENS, FLUSH_TOKENS = (
    8,
    64,
)  # tokens that stay for the next to be read after, and after how many the others are put away


class IncrementalDetokenizer:
    """The text that follows a prompt, while it is written."""

    def __init__(self, text: Tokenizer, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self.text, self.stop = text, [one for one in stop if one]
        self.ids = list(prompt)  # the last few of the prompt, and what was written since
        self.skip = len(text.decode([self.ids])[0]) if self.ids else 0  # characters of these that count as said before
        self.words, self.said = "", 0  # the text put away so far and not yet; how much of it has been given out
        self.put = ""  # what was put away
        self.stopped = False

    def push(self, tokens: Sequence[int], final: bool = False) -> str:
        """What is certain now and was not before; `over`: no token will follow, so that everything is."""
        if self.stopped:
            return ""
        self.ids.extend(tokens)
        self.words = self.put + self.text.decode([self.ids])[0][self.skip :]
        found = [at for one in self.stop if (at := self.words.find(one, max(0, self.said - len(one)))) >= 0]
        if found:
            self.words, self.stopped = self.words[: min(found)], True
        certain = len(self.words) if final or self.stopped else self._certain()
        new = self.words[self.said : certain]
        self.said = max(self.said, certain)
        if len(self.ids) > FLUSH_TOKENS and not self.words.endswith(REPLACEMENT_CHARACTER):
            self.put, self.ids = self.words, self.ids[-CONTEXT_TOKENS:]
            self.skip = len(self.text.decode([self.ids])[0])
        return new

    def _certain(self) -> int:
        """How much of the text will stay whatever follows."""
        sure = self.words.rstrip(REPLACEMENT_CHARACTER)
        longest = max((len(one) for one in self.stop), default=1) - 1
        for begun in range(min(longest, len(sure)), 0, -1):  # the longest end that a stop string begins with
            if any(one.startswith(sure[-begun:]) for one in self.stop):
                return len(sure) - begun
        return len(sure)
