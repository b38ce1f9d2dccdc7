"""Boxes: objects found in an image, each a rectangle with a label and a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from regard.core.errors import BadInput
from regard.modalities.base import INTEGER, NUMBER, PROBABILITY, STRING, Output, array_schema, object_schema


class Box(NamedTuple):
    """One object: its corners in pixels of the given image (x to the right, y down), its label and its score."""

    left: float
    top: float
    right: float
    bottom: float
    label: str
    score: float = 1.0

    @property
    def area(self) -> float:
        """The area in square pixels; 0 for an empty box."""
        return max(0.0, self.right - self.left) * max(0.0, self.bottom - self.top)

    def iou(self, other: Box) -> float:
        """Return intersection over union, 0 to 1."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        shared = max(0.0, width) * max(0.0, height)
        union = self.area + other.area - shared
        return shared / union if union > 0 else 0.0


@dataclass(frozen=True)
class Boxes(Output):
    """The boxes of one image, highest score first. `width` and `height` are those of the image, in pixels."""

    boxes: tuple[Box, ...]
    width: int
    height: int

    kind = "boxes"

    def __post_init__(self) -> None:
        ordered = tuple(sorted((Box(*box) for box in self.boxes), key=lambda box: -box.score))
        object.__setattr__(self, "boxes", ordered)
        for box in ordered:
            if not (box.left <= box.right and box.top <= box.bottom):
                raise BadInput(f"Box {tuple(box[:4])} has its corners swapped; expected left, top, right, bottom.")

    def above(self, score: float) -> Self:
        """Return the boxes with at least this score."""
        return type(self)(tuple(box for box in self.boxes if box.score >= score), self.width, self.height)

    def __len__(self) -> int:
        return len(self.boxes)

    def __str__(self) -> str:
        corner = "{:.0f},{:.0f},{:.0f},{:.0f}"
        return "\n".join(f"{b.label}\t{b.score:.4f}\t{corner.format(*b[:4])}" for b in self.boxes) or "nothing found"

    def to_json(self) -> dict[str, Any]:
        return {"boxes": [box._asdict() for box in self.boxes], "width": self.width, "height": self.height}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        return cls(tuple(Box(**box) for box in values["boxes"]), values["width"], values["height"])

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        corners: dict[str, Any] = dict.fromkeys(("left", "top", "right", "bottom"), NUMBER)
        box = object_schema({**corners, "label": STRING, "score": PROBABILITY})
        return object_schema({"boxes": array_schema(box), "width": INTEGER, "height": INTEGER})

    def difference(self, other: Boxes) -> float:
        """Return 1 minus the mean overlap of greedily matched boxes of one label; an unmatched box counts as 0."""
        pairs = sorted(
            (
                (a.iou(b), i, j)
                for i, a in enumerate(self.boxes)
                for j, b in enumerate(other.boxes)
                if a.label == b.label
            ),
            reverse=True,
        )
        used_a: set[int] = set()
        used_b: set[int] = set()
        total = 0.0
        for overlap, i, j in pairs:
            if i not in used_a and j not in used_b:
                used_a.add(i)
                used_b.add(j)
                total += overlap
        most = max(len(self.boxes), len(other.boxes))
        return 1.0 - total / most if most else 0.0
