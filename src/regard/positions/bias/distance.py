"""A bias that depends on how far a key is from the query, and on the head: b_h(m - n).

One value for a pass, shared by all layers. `dense` is computed when first asked for and kept; a stack that recomputes
activations should ask once before its first layer, so that what is kept was made outside the recomputed region.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from regard.core.shapes import Float, Int, Tensor


class DistanceBias(ABC):
    """The bias between queries and keys at these indices; a `core.positions.Bias`."""

    def __init__(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"]) -> None:
        self.queries, self.keys = queries, keys
        self._cache: dict[bool, Tensor] = {}

    @abstractmethod
    def matrix(self, distance: Int[Tensor, "#B N M"]) -> Float[Tensor, "#B H N M"]:
        """The bias of every head at these distances, key minus query."""

    @abstractmethod
    def value_at(self, distance: Tensor, head: Tensor) -> Tensor:
        """The bias of one head at one distance (or of many, broadcast)."""

    def dense(self, rows: slice = slice(None)) -> Float[Tensor, "#B H N M"]:
        """The bias of the asked query rows; all rows are computed once and kept."""
        # What was made without gradients must not be handed to a pass that wants them (watching, recomputation).
        mode = torch.is_grad_enabled()
        if mode in self._cache:
            return self._cache[mode][:, :, rows]
        made = self.matrix(self.keys[:, None, :] - self.queries[:, rows, None])
        if rows == slice(None):
            self._cache[mode] = made
        return made

    def score_mod(self) -> Callable[..., Tensor]:
        """The same as a FlexAttention ``score_mod(score, b, h, n, m)``: nothing of size N × M is made."""
        queries, keys = self.queries, self.keys
        many_queries, many_keys = queries.shape[0] > 1, keys.shape[0] > 1

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            n_at = queries[b if many_queries else 0, n]
            m_at = keys[b if many_keys else 0, m]
            return score + self.value_at(m_at - n_at, h)

        return add
