"""Transcript: what is said in a recording, and when."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from regard.modalities.base import NUMBER, STRING, Output, array_schema, object_schema
from regard.modalities.text import Text


@dataclass(frozen=True)
class TimedWord:
    """A word (or a letter) and the seconds from which to which the model attended to it.

    CTC is free to emit a label at any moment of it, so its times are single moments.
    """

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Transcript(Output):
    """The text, its log-probability, and the times of its words."""

    text: str
    score: float
    words: tuple[TimedWord, ...] = ()

    kind = "transcript"

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "score": self.score, "words": [asdict(word) for word in self.words]}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        return cls(values["text"], values["score"], tuple(TimedWord(**word) for word in values["words"]))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        word = object_schema({"word": STRING, "start": NUMBER, "end": NUMBER})
        return object_schema({"text": STRING, "score": NUMBER, "words": array_schema(word)})

    def difference(self, other: Transcript) -> float:
        """Return the difference of the texts."""
        return Text(self.text).difference(other.text)
