"""Text: a string, handed in or returned. As an output it may carry a score and the other candidates of a search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Self

from regard.core.errors import BadInput
from regard.modalities.base import (
    INTEGER,
    NO_LIMITS,
    NUMBER,
    STRING,
    Input,
    Limits,
    Output,
    Source,
    array_schema,
    object_schema,
)


@dataclass(frozen=True)
class Candidate:
    """One text that a search or a sampler found, its score (mean log-probability unless the task says otherwise), why
    it ended ("end": end token, "stop": a stop string, "length"; "" where the task does not say), and its token ids."""

    text: str
    score: float
    finish_reason: str = ""
    tokens: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the reason and the number of tokens only where they are known."""
        more = {"finish_reason": self.finish_reason, "tokens": len(self.tokens)} if self.finish_reason else {}
        return {"text": self.text, "score": self.score, **more}


class Text(str, Input, Output):
    """A text. It is a `str`; `score` and `candidates` (best first, this text among them) come from a search."""

    kind = "text"
    units = "characters"

    score: float | None
    candidates: tuple[Candidate, ...]

    def __new__(cls, text: str = "", score: float | None = None, candidates: Sequence[Candidate] = ()) -> Self:
        made = super().__new__(cls, text)
        made.score, made.candidates = score, tuple(candidates)
        return made

    @classmethod
    def from_candidates(cls, candidates: Sequence[Candidate]) -> Self:
        """Return the best of several candidates, with all of them."""
        best = candidates[0]
        return cls(best.text, best.score, candidates)

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> Text:
        if not isinstance(source, str):
            raise BadInput(f"Expected a text (str), got {type(source).__name__}.")
        if len(source) > limits.characters:
            raise BadInput(f"Text has {len(source):,} characters; the limit is {limits.characters:,}.")
        if any("\ud800" <= character <= "\udfff" for character in source):
            raise BadInput("Text contains half of a surrogate pair, which is no character; send valid Unicode.")
        return source if isinstance(source, Text) else cls(source)

    @classmethod
    def is_single(cls, given: Any) -> bool:
        return isinstance(given, str)

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        for number, text in enumerate(arguments, 1):
            yield Source(f"text {number}", text)

    @classmethod
    def size(cls, value: str) -> float:
        return len(value)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"text": str(self), "score": self.score}
        if len(self.candidates) > 1 or any(each.finish_reason for each in self.candidates):
            found["candidates"] = [each.to_json() for each in self.candidates]
        return found

    @classmethod
    def from_json(cls, value: Any, limits: Limits | None = None) -> Text:
        """Return the text of a string, or the output that `to_json` wrote; with `limits`, which a request has, only a
        string is taken."""
        if limits is not None or not isinstance(value, dict):
            return cls.read(value, limits or NO_LIMITS)
        candidates = [
            Candidate(each["text"], each["score"], each.get("finish_reason", ""))
            for each in value.get("candidates", ())
        ]
        return cls(value["text"], value.get("score"), candidates)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the schema of an input: a string. `output_schema` is that of an output."""
        return {**STRING, "minLength": 1}

    @classmethod
    def output_schema(cls) -> dict[str, Any]:
        """Return the schema of `to_json`."""
        known = {"text": STRING, "score": NUMBER, "finish_reason": STRING, "tokens": INTEGER}
        candidate = object_schema(known, ["finish_reason", "tokens"])
        score = {"anyOf": [NUMBER, {"type": "null"}]}
        return object_schema({"text": STRING, "score": score, "candidates": array_schema(candidate)}, ["candidates"])

    def difference(self, other: Any) -> float:
        """Return 1 minus the share of words that both have in the same order."""
        a, b = self.split(), str(other).split()
        return 1.0 - SequenceMatcher(None, a, b, autojunk=False).ratio() if a or b else 0.0
