"""Incremental detokenisation: tokens in as they are generated, text out as soon as it is certain.

    tokens       ⟨c3⟩  ⟨bc⟩ber         byte pairs: the first is half a character
    text         "\\\\ufffd"  "über"       so nothing is returned after the first token, and "über" after the second
    stop "END"   "... E"               might become END: the E is held back

Text that was returned never changes. A text ends before the first stop string that appears in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"  # what a decoder returns for an incomplete character
CONTEXT_TOKENS = 8  # tokens kept as context for decoding the next ones
FLUSH_TOKENS = 64  # more tokens than this: their text is stored, and only the context is kept


class IncrementalDetokenizer:
    """Text that follows a prompt, while it is generated."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        self.tokenizer, self.stop = tokenizer, [string for string in stop if string]
        self.ids = list(prompt)  # context (at first the prompt) and the tokens since
        self.skip = len(tokenizer.decode([self.ids])[0]) if self.ids else 0  # characters of the context
        self.full_text, self.returned = "", 0  # all text so far; how many of its characters were returned
        self.stored = ""  # text of the flushed tokens
        self.stopped = False

    def push(self, tokens: Sequence[int], final: bool = False) -> str:
        """Return the text that has become certain; `final`: no token follows, so all of it is."""
        if self.stopped:
            return ""
        self.ids.extend(tokens)
        self.full_text = self.stored + self.tokenizer.decode([self.ids])[0][self.skip :]
        found = [
            index
            for string in self.stop
            if (index := self.full_text.find(string, max(0, self.returned - len(string)))) >= 0
        ]
        if found:
            self.full_text, self.stopped = self.full_text[: min(found)], True
        certain = len(self.full_text) if final or self.stopped else self._certain()
        new = self.full_text[self.returned : certain]
        self.returned = max(self.returned, certain)
        if len(self.ids) > FLUSH_TOKENS and not self.full_text.endswith(REPLACEMENT_CHARACTER):
            self.stored, self.ids = self.full_text, self.ids[-CONTEXT_TOKENS:]
            self.skip = len(self.tokenizer.decode([self.ids])[0])
        return new

    def _certain(self) -> int:
        """Return how many characters stay whatever follows."""
        complete = self.full_text.rstrip(REPLACEMENT_CHARACTER)
        longest = max((len(string) for string in self.stop), default=1) - 1
        for size in range(min(longest, len(complete)), 0, -1):  # the longest suffix that is a prefix of a stop string
            if any(string.startswith(complete[-size:]) for string in self.stop):
                return len(complete) - size
        return len(complete)
