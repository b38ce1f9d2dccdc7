"""TokenEmbeddings: one vector for every word of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.modalities.base import NUMBER, STRING, Output, array_schema, object_schema


@dataclass(frozen=True, eq=False)
class TokenEmbeddings(Output):
    """The words of a text and the vector of each, float32 on the host."""

    words: tuple[str, ...]
    vectors: Float[Tensor, "N C"]

    kind = "token_embeddings"

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", tuple(self.words))
        if len(self.words) != len(self.vectors):
            raise BadInput(f"{len(self.words)} words have {len(self.vectors)} vectors; expected one for each word.")

    def __str__(self) -> str:
        rows = zip(self.words, self.vectors.tolist(), strict=True)
        return "\n".join(f"{word}\t{' '.join(f'{value:.6g}' for value in vector)}" for word, vector in rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.vectors.numpy(), dtype)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        return cls(tuple(values["words"]), torch.tensor(values["vectors"], dtype=torch.float32))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return object_schema({"words": array_schema(STRING), "vectors": array_schema(array_schema(NUMBER))})

    def difference(self, other: TokenEmbeddings) -> float:
        """Return the mean over the words of half of 1 minus the cosine; 1 where the words differ."""
        if self.words != other.words:
            return 1.0
        cosines = torch.nn.functional.cosine_similarity(self.vectors, other.vectors, dim=-1)
        return float(((1 - cosines) / 2).mean()) if self.words else 0.0
