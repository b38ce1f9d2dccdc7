"""Span: a part of the given text, such as the answer to a question about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.modalities.base import INTEGER, NUMBER, STRING, Output, object_schema


@dataclass(frozen=True)
class Span(Output):
    """The text of the span, the characters from `begin` to `end` (exclusive) where it stands, and its score (the sum of
    the logits of begin and end)."""

    text: str
    begin: int
    end: int
    score: float

    kind = "span"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return object_schema({"text": STRING, "begin": INTEGER, "end": INTEGER, "score": NUMBER})

    def difference(self, other: Span) -> float:
        """Return 1 minus intersection over union of the two ranges of characters."""
        shared = max(0, min(self.end, other.end) - max(self.begin, other.begin))
        union = (self.end - self.begin) + (other.end - other.begin) - shared
        return 1.0 - shared / union if union else 0.0
