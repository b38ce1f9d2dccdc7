"""Positions as a mixer sees them: token indices, a transform of q and k, and a bias on the scores.

A stack makes one `PositionInfo` for each pass and hands it to every layer, so a table of relative positions is read
once and shared by all layers, and decoding one token at a time is the same call with other indices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from regard.core.errors import Unsupported
from regard.core.shapes import Float, Int, Rows, Tensor


@runtime_checkable
class Bias(Protocol):
    """A term added to the scores before the softmax; a value, like a mask."""

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        """Return the bias of the query rows `rows`."""
        ...

    def score_mod(self) -> Callable[..., Tensor] | None:
        """Return a FlexAttention ``score_mod(score, b, h, n, m)``, or None where there is no formula."""
        ...


@runtime_checkable
class FactorizedBias(Bias, Protocol):
    """A bias that is a dot product of a function of the query and one of the key's position."""

    def fold_into_qk(
        self, q: Float[Tensor, "B H N D"], k: Float[Tensor, "B G M D"], scale: float
    ) -> tuple[Tensor, Tensor]:
        """Return q and k with further coordinates, so that scale (q · k) includes the bias; D is a multiple of 8."""
        ...


@runtime_checkable
class QKTransform(Protocol):
    """A map of q and k after projection, by position (rotary and its relatives)."""

    def transform(self, x: Float[Tensor, "B H N D"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B H N D"]:
        """Transform each vector by its position."""
        ...


@dataclass(frozen=True, eq=False)
class TensorBias:
    """A bias given as a dense tensor."""

    values: Float[Tensor, "#B #H N M"]

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B #H N M"]:
        return self.values[:, :, rows]

    def score_mod(self) -> Callable[..., Tensor]:
        values = self.values
        b1, h1 = values.shape[0] == 1, values.shape[1] == 1

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            return score + values[0 if b1 else b, 0 if h1 else h, n, m]

        return add


@dataclass(frozen=True, eq=False)
class LabelBias:
    """A bias by the label of each pair of tokens, of which every query has its own scores; plus another bias."""

    scores: Float[Tensor, "B H N labels"]
    label: Callable[[Tensor, Tensor], Tensor]  # of queries n and keys m; index tensors that broadcast
    other: Bias | None = None

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "B H N M"]:
        place = torch.arange(self.scores.shape[2], device=self.scores.device)
        labels = self.label(place[rows, None], place)
        found = self.scores[:, :, rows].gather(3, labels.expand(*self.scores.shape[:2], *labels.shape))
        return found if self.other is None else found + self.other.dense(rows)

    def score_mod(self) -> Callable[..., Tensor]:
        other = None
        if self.other is not None:
            other = self.other.score_mod() or TensorBias(self.other.dense()).score_mod()

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            score = score + self.scores[b, h, n, self.label(n, m)]
            return score if other is None else other(score, b, h, n, m)

        return add


@dataclass(frozen=True, eq=False)
class PositionInfo:
    """The positions of one pass."""

    queries: Int[Tensor, "#B N"]
    keys: Int[Tensor, "#B M"]
    qk_transform: QKTransform | None = None
    bias: Bias | None = None
    query_vectors: Float[Tensor, "#B N C"] | None = None  # added to the inputs of q (and, in self-attention, of k)
    key_vectors: Float[Tensor, "#B M C"] | None = None  # added to the context where k is made of it

    def require_added(self, name: str) -> None:
        """Raise `Unsupported` for positions that change q, k or scores, for mixers that have no such map."""
        if self.qk_transform is not None or self.bias is not None or self.query_vectors is not None:
            raise Unsupported(
                f"{name} has no scores between pairs of tokens that positions could change; "
                "use positions that are added to the tokens, or none"
            )

    @staticmethod
    def sequence_indices(n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the indices of n queries and m keys of a sequence; the queries are at the end of the keys."""
        return torch.arange(m - n, m, device=device)[None], torch.arange(m, device=device)[None]
