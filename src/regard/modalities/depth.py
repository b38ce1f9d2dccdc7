"""Depth: the distance of every pixel of an image.

Metric depth is in metres. Relative depth has no unit, and larger means farther away; models that predict inverse depth
convert it before they return this.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from regard.core.errors import BadInput
from regard.modalities.base import INTEGER, STRING, Output, object_schema


@dataclass(frozen=True, eq=False)
class Depth(Output):
    """One number per pixel, float32, rows by columns; NaN where the depth is unknown."""

    values: np.ndarray
    metric: bool = False  # metres; otherwise relative

    kind = "depth"

    def __post_init__(self) -> None:
        values = np.asarray(self.values, np.float32)
        if values.ndim != 2 or not values.size:
            raise BadInput(f"Depth has shape {values.shape}; expected rows and columns.")
        object.__setattr__(self, "values", values)

    @property
    def unit(self) -> str:
        """ "m", or "" for relative depth."""
        return "m" if self.metric else ""

    def __str__(self) -> str:
        known = self.values[np.isfinite(self.values)]
        if not known.size:
            return "depth unknown everywhere"
        low, middle, high = np.quantile(known, [0.0, 0.5, 1.0])
        unit = " m" if self.metric else " (relative)"
        return f"depth {low:.3g} to {high:.3g}{unit}, median {middle:.3g}"

    def to_json(self) -> dict[str, Any]:
        data = base64.b64encode(np.ascontiguousarray(self.values, "<f4").tobytes()).decode("ascii")
        return {"height": self.values.shape[0], "width": self.values.shape[1], "metric": self.metric, "float32": data}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        flat = np.frombuffer(base64.b64decode(values["float32"]), "<f4")
        return cls(flat.reshape(values["height"], values["width"]).copy(), values["metric"])

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        data = {**STRING, "contentEncoding": "base64", "description": "little-endian float32, row by row"}
        return object_schema({"height": INTEGER, "width": INTEGER, "metric": {"type": "boolean"}, "float32": data})

    def difference(self, other: Depth) -> float:
        """Return the mean absolute relative error (AbsRel) of the other, at most 1; relative depth is scaled first."""
        if self.values.shape != other.values.shape:
            return 1.0
        both = np.isfinite(self.values) & np.isfinite(other.values) & (self.values > 0)
        if not both.any():
            return 0.0
        mine, theirs = self.values[both].astype(np.float64), other.values[both].astype(np.float64)
        if not (self.metric and other.metric) and np.median(theirs) > 0:
            theirs = theirs * (np.median(mine) / np.median(theirs))
        return float(min(1.0, np.mean(np.abs(mine - theirs) / mine)))
