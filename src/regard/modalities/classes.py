"""Classes: labels with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from regard.modalities.base import PROBABILITY, STRING, Output, object_schema


@dataclass(frozen=True)
class Classes(Output):
    """The most likely label, its probability, and the probabilities of all labels, most likely first."""

    label: str
    probability: float
    probabilities: dict[str, float]

    kind = "classes"

    @classmethod
    def rank(cls, labels: Sequence[str], probabilities: Sequence[float]) -> Self:
        """Return the classes of one row of probabilities."""
        order = sorted(range(len(labels)), key=lambda n: -probabilities[n])
        ranked = {labels[n]: float(probabilities[n]) for n in order}
        return cls(labels[order[0]], float(probabilities[order[0]]), ranked)

    def top(self, number: int | None) -> Self:
        """Return the `number` most likely classes only; None: all."""
        return type(self)(self.label, self.probability, dict(list(self.probabilities.items())[:number]))

    def __str__(self) -> str:
        return "\t".join(f"{label}\t{probability:.4f}" for label, probability in self.probabilities.items())

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        every = {"type": "object", "additionalProperties": PROBABILITY}
        return object_schema({"label": STRING, "probability": PROBABILITY, "probabilities": every})

    def difference(self, other: Classes) -> float:
        """Return the total variation distance between the two distributions."""
        labels = self.probabilities.keys() | other.probabilities.keys()
        gaps = (abs(self.probabilities.get(x, 0.0) - other.probabilities.get(x, 0.0)) for x in labels)
        return min(1.0, sum(gaps) / 2)
