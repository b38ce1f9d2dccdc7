"""Embedding: one vector for an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from regard.core.shapes import Float, Tensor
from regard.modalities.base import NUMBER, Output, array_schema, object_schema


@dataclass(frozen=True, eq=False)
class Embedding(Output):
    """A vector, float32 on the host."""

    vector: Float[Tensor, " C"]

    kind = "embedding"

    def __str__(self) -> str:
        return " ".join(f"{value:.6g}" for value in self.vector.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.vector.numpy(), dtype)

    def to_json(self) -> dict[str, Any]:
        return {"vector": [float(f"{value:.9g}") for value in self.vector.tolist()]}  # 9 digits hold a float32

    @classmethod
    def from_json(cls, values: Any) -> Self:
        return cls(torch.tensor(values["vector"], dtype=torch.float32))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return object_schema({"vector": array_schema(NUMBER)})

    def difference(self, other: Embedding) -> float:
        """Return half of 1 minus the cosine of the angle between the vectors."""
        cosine = torch.nn.functional.cosine_similarity(self.vector, other.vector, dim=0)
        return float((1 - cosine) / 2)
