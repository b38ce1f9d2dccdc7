"""Sparse access: keep the k largest weights of an address.

    top k       w_n = v_n / Σ_kept v     for the k largest, 0 elsewhere         O(H N log k) to choose, O(H k W) to read
    dense       w = v                    every read touches all N cells

A head then reads k cells, and the gradient reaches k cells. Here the address stays a row of N numbers, so it can be
watched and shifted; the saving of the paper needs an index of nearest neighbours over the cells.

Rae et al.: Scaling Memory-Augmented Neural Networks with Sparse Reads and Writes. NeurIPS 2016. arXiv:1610.09027
"""

from __future__ import annotations

import torch

from regard.attention.addressing.base import Addressing
from regard.core.shapes import Float, Tensor


class TopK(Addressing):
    """The `k` largest weights, normalised; raw is empty. A memory of at most k cells stays dense."""

    def __init__(self, k: int = 8) -> None:
        super().__init__()
        self.k = k

    def raw_width(self, word: int) -> int:
        return 0

    def address(self, raw: Tensor, memory: Tensor, weights: Tensor, previous: Tensor) -> Float[Tensor, "*B H N"]:
        kept, at = weights.topk(min(self.k, weights.shape[-1]), -1)
        kept = kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)
        return torch.zeros_like(weights).scatter(-1, at, kept)

    def extra_repr(self) -> str:
        return f"k={self.k}"
