"""MaskFills: the words that may stand where a text has a mask token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from regard.modalities.base import INTEGER, PROBABILITY, STRING, Output, array_schema, object_schema


@dataclass(frozen=True)
class MaskPrediction:
    """A word that may stand at a mask, as the vocabulary spells it, its token id, and its probability."""

    word: str
    token: int
    probability: float


@dataclass(frozen=True)
class MaskFills(Output):
    """The text with the most likely word at every mask, and for every mask its most likely words, best first."""

    text: str
    masks: tuple[tuple[MaskPrediction, ...], ...]

    kind = "mask_fills"

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "masks": [[vars(each) for each in mask] for mask in self.masks]}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        return cls(values["text"], tuple(tuple(MaskPrediction(**each) for each in mask) for mask in values["masks"]))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        prediction = object_schema({"word": STRING, "token": INTEGER, "probability": PROBABILITY})
        return object_schema({"text": STRING, "masks": array_schema(array_schema(prediction))})

    def difference(self, other: MaskFills) -> float:
        """Return the share of masks whose most likely word is another one."""
        pairs = list(zip(self.masks, other.masks, strict=False))
        wrong = sum(a[0].word != b[0].word for a, b in pairs)
        return wrong / len(pairs) if pairs else float(self.text != other.text)


def fill_masks(text: str, words: Sequence[str], mask: str = "[MASK]") -> str:
    """Return the text with these words at its masks; a piece that begins with ## is joined to what stands before it."""
    first, *rest = text.split(mask)
    for word, after in zip(words, rest, strict=True):
        first = (first.rstrip() + word[2:] if word.startswith("##") and len(word) > 2 else first + word) + after
    return first
