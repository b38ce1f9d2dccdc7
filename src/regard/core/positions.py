"""Where the tokens are, as a mixer sees it: their indices, and what positions do to q, k and the scores.

A stack makes one `PositionInfo` for each pass and hands it to every layer, so a table of relative positions is read once and
shared by all layers, and decoding one token at a time is the same call with other indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from regard.core.shapes import Float, Int, Rows, Tensor


@runtime_checkable
class Bias(Protocol):
    """Something added to the scores before the softmax; a value, like a mask."""

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        """The bias of the asked query rows."""
        ...

    def score_mod(self) -> Callable[..., Tensor] | None:
        """A FlexAttention ``score_mod(score, b, h, n, m)``, or None where there is no formula."""
        ...


@runtime_checkable
class FactorizedBias(Bias, Protocol):
    """A bias that is a product of what the query says and where the key is, so that it can join theirs."""

    def fold_into_qk(
        self, q: Float[Tensor, "B H N D"], k: Float[Tensor, "B G M D"], scale: float
    ) -> tuple[Tensor, Tensor]:
        """q and k with more coordinates, a multiple of eight: scale (q · k) is the score and the bias."""
        ...


@runtime_checkable
class QKTransform(Protocol):
    """Something done to q and k after projection (rotary and its relatives)."""

    def transform(self, x: Float[Tensor, "B H N D"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B H N D"]:
        """Turn each vector by its position."""
        ...


@dataclass(frozen=True, eq=False)
class TensorBias:
    """A bias that is simply a tensor."""

    values: Float[Tensor, "#B #H N M"]

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        """The asked rows."""
        return self.values[:, :, rows]

    def score_mod(self) -> Callable[..., Tensor]:
        """Look the value up."""
        values = self.values
        b1, h1 = values.shape[0] == 1, values.shape[1] == 1

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            return score + values[0 if b1 else b, 0 if h1 else h, n, m]

        return add


@dataclass(frozen=True, eq=False)
class PositionInfo:
    """The positions of one pass."""

    queries: Int[Tensor, "#B N"]
    keys: Int[Tensor, "#B M"]
    qk_transform: QKTransform | None = None
    bias: Bias | None = None

    @staticmethod
    def sequence_indices(n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Indices of queries and keys on a line, the queries at the end of the keys."""
        return torch.arange(m - n, m, device=device)[None], torch.arange(m, device=device)[None]
