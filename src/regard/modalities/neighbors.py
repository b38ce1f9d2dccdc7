"""Neighbors: the words whose vectors are most similar to that of a given word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from regard.modalities.base import STRING, Output, array_schema, object_schema


class WordNeighbor(NamedTuple):
    """A word and the cosine of the angle between its vector and the given one, -1 to 1."""

    word: str
    cosine: float


@dataclass(frozen=True)
class Neighbors(Output):
    """The nearest words of `word`, most similar first.

    Of a sum of words ("king - man + woman"), `given` are these words, which are not among the neighbours.
    """

    word: str
    neighbors: tuple[WordNeighbor, ...]
    given: tuple[WordNeighbor, ...] = ()

    kind = "neighbors"

    def __str__(self) -> str:
        return "\n".join(f"{each.word}\t{each.cosine:.4f}" for each in self.neighbors)

    def to_json(self) -> dict[str, Any]:
        given = {"given": [each._asdict() for each in self.given]} if self.given else {}
        return {"word": self.word, "neighbors": [each._asdict() for each in self.neighbors]} | given

    @classmethod
    def from_json(cls, values: Any) -> Self:
        neighbors, given = (values.get(key, ()) for key in ("neighbors", "given"))
        return cls(values["word"], *(tuple(WordNeighbor(**each) for each in some) for some in (neighbors, given)))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        cosine = {"type": "number", "minimum": -1.001, "maximum": 1.001}
        words = array_schema(object_schema({"word": STRING, "cosine": cosine}))
        return object_schema({"word": STRING, "neighbors": words, "given": words}, optional=["given"])

    def difference(self, other: Neighbors) -> float:
        """Return the share of neighbours that the other does not have."""
        mine, theirs = ({each.word for each in one.neighbors} for one in (self, other))
        return 1.0 - len(mine & theirs) / max(1, len(mine | theirs)) if mine or theirs else 0.0
