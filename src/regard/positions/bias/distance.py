"""A bias that depends on the distance from query to key, and on the head: b_h(m - n).

One value for a pass, shared by all layers. `dense` is computed on first use and cached; a stack with gradient
checkpointing should call it once before its first layer, so that the cache is filled outside the recomputed region.
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
        """Return the bias of every head at these distances, key minus query."""

    @abstractmethod
    def value_at(self, distance: Tensor, head: Tensor) -> Tensor:
        """Return the bias of a head at a distance, broadcast."""

    def dense(self, rows: slice = slice(None)) -> Float[Tensor, "#B H N M"]:
        # A bias computed without gradients must not serve a pass that needs them (capture, recomputation).
        mode = torch.is_grad_enabled()
        if mode in self._cache:
            return self._cache[mode][:, :, rows]
        bias = self.matrix(self.keys[:, None, :] - self.queries[:, rows, None])
        if rows == slice(None):
            self._cache[mode] = bias
        return bias

    def score_mod(self) -> Callable[..., Tensor]:
        queries, keys = self.queries, self.keys
        many_queries, many_keys = queries.shape[0] > 1, keys.shape[0] > 1

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            n_at = queries[b if many_queries else 0, n]
            m_at = keys[b if many_keys else 0, m]
            return score + self.value_at(m_at - n_at, h)

        return add
