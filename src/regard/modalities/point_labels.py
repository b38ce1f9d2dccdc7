"""PointLabels: a label for every point of a cloud, with its probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.modalities.base import INTEGER, PROBABILITY, STRING, Output, array_schema, object_schema


@dataclass(frozen=True, eq=False)
class PointLabels(Output):
    """For every point, as the cloud was given: the number of its label, and the probability of that label."""

    labels: Int[Tensor, " N"]
    scores: Float[Tensor, " N"]
    names: tuple[str, ...]  # of all labels that there are

    kind = "point_labels"

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.labels) != len(self.scores):
            raise BadInput(
                f"{len(self.labels):,} labels have {len(self.scores):,} scores; expected one for each point."
            )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.names):
            found = f"{int(self.labels.min())} to {int(self.labels.max())}"
            raise BadInput(
                f"Labels must be numbers of {len(self.names)} names, 0 to {len(self.names) - 1}, got {found}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self) -> dict[str, int]:
        """Return how many points each label has, the most first; labels without points are left out."""
        many = self.labels.bincount(minlength=len(self.names)).tolist()
        found = [(name, count) for name, count in zip(self.names, many, strict=True) if count]
        return dict(sorted(found, key=lambda pair: -pair[1]))

    def __str__(self) -> str:
        whole = max(1, len(self))
        return "\n".join(f"{name}\t{n:,} points\t{100 * n / whole:.1f} %" for name, n in self.counts().items())

    def to_json(self) -> dict[str, Any]:
        scores = [round(score, 6) for score in self.scores.tolist()]
        return {"labels": self.labels.tolist(), "scores": scores, "names": list(self.names)}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        labels, scores = torch.tensor(values["labels"], dtype=torch.long), torch.tensor(values["scores"])
        return cls(labels, scores, tuple(values["names"]))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        labels = array_schema(INTEGER, description="of each point, in the order given, the number of its name")
        return object_schema({"labels": labels, "scores": array_schema(PROBABILITY), "names": array_schema(STRING)})

    def difference(self, other: PointLabels) -> float:
        """Return the share of points with another label; 1 where the points are not as many."""
        if len(self) != len(other):
            return 1.0
        pairs = zip(self.labels.tolist(), other.labels.tolist(), strict=True)
        return sum(self.names[a] != other.names[b] for a, b in pairs) / max(1, len(self))
