"""TokenLabels: one label for every word of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.core.errors import BadInput
from regard.modalities.base import STRING, Output, array_schema, object_schema


@dataclass(frozen=True)
class TokenLabels(Output):
    """The words of a text and the label of each (part of speech, chunk or entity tag)."""

    words: tuple[str, ...]
    labels: tuple[str, ...]

    kind = "token_labels"

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        object.__setattr__(self, "labels", tuple(self.labels))
        if len(self.words) != len(self.labels):
            raise BadInput(f"{len(self.words)} words have {len(self.labels)} labels; expected one for each word.")

    def __str__(self) -> str:
        return " ".join(f"{word}/{label}" for word, label in zip(self.words, self.labels, strict=True))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return object_schema({"words": array_schema(STRING), "labels": array_schema(STRING)})

    def difference(self, other: TokenLabels) -> float:
        """Return the share of words with another label; 1 where the words differ."""
        if self.words != other.words:
            return 1.0
        wrong = sum(a != b for a, b in zip(self.labels, other.labels, strict=True))
        return wrong / len(self.words) if self.words else 0.0
