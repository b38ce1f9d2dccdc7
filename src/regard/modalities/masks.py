"""Masks: segments of an image, each a set of pixels with a label and a score.

A mask travels in JSON as COCO's uncompressed run lengths: counts of pixels in column-major order, zeros first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.core.errors import BadInput
from regard.modalities.base import INTEGER, PROBABILITY, STRING, Output, array_schema, object_schema


@dataclass(frozen=True, eq=False)
class Mask:
    """One segment: its pixels (bool, rows by columns of the image), its label and its score."""

    pixels: np.ndarray
    label: str
    score: float = 1.0


@dataclass(frozen=True, eq=False)
class Masks(Output):
    """The segments of one image, highest score first. They may overlap; a panoptic result does not."""

    masks: tuple[Mask, ...]
    width: int
    height: int

    kind = "masks"

    def __post_init__(self) -> None:
        for mask in self.masks:
            if mask.pixels.shape != (self.height, self.width):
                wanted = f"({self.height}, {self.width}), the image's rows and columns"
                raise BadInput(f"Mask '{mask.label}' has shape {mask.pixels.shape}; expected {wanted}.")
        object.__setattr__(self, "masks", tuple(sorted(self.masks, key=lambda mask: -mask.score)))

    @classmethod
    def from_labels(cls, labels: np.ndarray, names: dict[int, str]) -> Self:
        """Return one mask per class of a map of class numbers (Y X); classes without a name are left out."""
        found = tuple(Mask(labels == n, names[n]) for n in np.unique(labels).tolist() if n in names)
        return cls(found, labels.shape[1], labels.shape[0])

    def __len__(self) -> int:
        return len(self.masks)

    def __str__(self) -> str:
        whole = max(1, self.width * self.height)
        rows = (
            f"{m.label}\t{m.score:.4f}\t{100 * float(m.pixels.sum()) / whole:.1f} % of the image" for m in self.masks
        )
        return "\n".join(rows) or "nothing found"

    def to_json(self) -> dict[str, Any]:
        each = [{"counts": encode_runs(m.pixels), "label": m.label, "score": m.score} for m in self.masks]
        return {"masks": each, "width": self.width, "height": self.height}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        size = values["height"], values["width"]
        each = tuple(Mask(decode_runs(m["counts"], *size), m["label"], m["score"]) for m in values["masks"])
        return cls(each, values["width"], values["height"])

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        counts = array_schema({"type": "integer", "minimum": 0})
        mask = object_schema({"counts": counts, "label": STRING, "score": PROBABILITY})
        return object_schema({"masks": array_schema(mask), "width": INTEGER, "height": INTEGER})

    def difference(self, other: Masks) -> float:
        """Return 1 minus the mean intersection over union by label, over the labels of either."""
        labels = {m.label for m in (*self.masks, *other.masks)}
        overlaps = []
        for label in labels:
            a, b = (self._union(each, label) for each in (self, other))
            union = int((a | b).sum())
            overlaps.append(int((a & b).sum()) / union if union else 1.0)
        return 1.0 - sum(overlaps) / len(overlaps) if overlaps else 0.0

    @staticmethod
    def _union(masks: Masks, label: str) -> np.ndarray:
        found = np.zeros((masks.height, masks.width), bool)
        for mask in masks.masks:
            if mask.label == label:
                found |= mask.pixels
        return found


def encode_runs(pixels: np.ndarray) -> list[int]:
    """Return the run lengths of a mask in column-major order, beginning with the zeros."""
    flat = np.asarray(pixels, bool).flatten(order="F")
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flat, [False]]).astype(np.int8)))
    runs = np.diff(np.concatenate([[0], edges, [len(flat)]])).tolist()
    return runs if runs[-1] or len(runs) == 1 else runs[:-1]


def decode_runs(counts: list[int], height: int, width: int) -> np.ndarray:
    """Return the mask (rows by columns) of run lengths."""
    if any(count < 0 for count in counts):
        raise BadInput(f"Run lengths must be at least 0, got {min(counts)}.")
    if sum(counts) != height * width:
        raise BadInput(f"Run lengths add up to {sum(counts):,} pixels; the image has {height * width:,}.")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape((height, width), order="F")
