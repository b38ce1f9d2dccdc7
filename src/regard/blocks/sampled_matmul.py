"""Products of chosen rows: of all B × V scores between vectors and a table, only those of P pairs; and the way back.

    picked     s_p = h[row_p] · table[word_p]                     P of the B V numbers of h tableᵀ
    gradients  dh = A(g) table        dtable = A(g)ᵀ h            A: a sparse B × V matrix with g_p at (row_p, word_p)
    averaged   m_b = Σ_p a_p table[word_p] over the pairs of row b, all with a_p = 1 / (pairs of the row)

Written as gather, multiply, sum, both rows of every pair are copied, and again on the way back. Here the sparse matrix
is multiplied as what it is (on a CPU: MKL's sampled product, and bags of rows, which sum while they read), with nothing
stored but one number a pair. The gradient of a table is dense, and zero in every row that no pair names.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from regard.core.shapes import Bool, Float, Int, Tensor

CHUNK = 1024  # pairs gathered at a time, where there is no sampled product: they stay in the cache


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs (row, word), ordered by row; row b has those from begins[b] to begins[b + 1]."""

    offsets: Int[Tensor, " rows_and_one"]
    rows: Int[Tensor, " P"]
    words: Int[Tensor, " P"]

    @classmethod
    def from_mask(cls, words: Int[Tensor, "B K"], real: Bool[Tensor, "B K"]) -> Pairs:
        """The words of every row that are real."""
        begins = F.pad(real.sum(1).cumsum(0), (1, 0))
        return cls(begins, real.nonzero(as_tuple=True)[0], words[real])

    def __len__(self) -> int:
        return len(self.offsets) - 1


def pair_scores(h: Float[Tensor, "B C"], table: Float[Tensor, "V C"], pairs: Pairs) -> Float[Tensor, " P"]:
    """The score of every pair."""
    found: Tensor = _PairScores.apply(h, table, pairs)
    return found


def pair_means(table: Float[Tensor, "V C"], pairs: Pairs) -> Float[Tensor, "B C"]:
    """The mean of the rows that each row's pairs name; zeros where it has none."""
    found: Tensor = _PairMeans.apply(table, pairs)
    return found


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, table: Tensor, pairs: Pairs) -> Tensor:
        ctx.save_for_backward(h, table)
        ctx.pairs = pairs
        return _scores(h, table, pairs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        h, table = ctx.saved_tensors
        dh = _sum_by_row(table, ctx.pairs, g) if ctx.needs_input_grad[0] else None
        return dh, _sum_by_word(h, ctx.pairs, g, len(table)) if ctx.needs_input_grad[1] else None, None


class _PairMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, pairs: Pairs) -> Tensor:
        share = (1 / (pairs.offsets[1:] - pairs.offsets[:-1]).clamp(min=1).to(table.dtype))[pairs.rows]
        ctx.pairs, ctx.share, ctx.size = pairs, share, len(table)
        return _sum_by_row(table, pairs, share)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> Any:
        return _sum_by_word(d, ctx.pairs, ctx.share, ctx.size), None


def _scores(h: Tensor, table: Tensor, pairs: Pairs) -> Tensor:
    if h.device.type == "cpu" and torch.backends.mkl.is_available() and len(pairs.words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that sparse tensors are young
            wanted = torch.sparse_csr_tensor(
                pairs.offsets, pairs.words, h.new_zeros(len(pairs.words)), (len(pairs), len(table)),
                check_invariants=False,
            )  # fmt: skip
            found: Tensor = torch.sparse.sampled_addmm(wanted, h, table.mT, beta=0.0).values()
        return found
    some = CHUNK if h.device.type == "cpu" else max(1, len(pairs.words))
    parts = zip(pairs.rows.split(some), pairs.words.split(some), strict=True)
    return torch.cat([(h[rows] * table[words]).sum(-1) for rows, words in parts])


def _sum_by_row(table: Tensor, pairs: Pairs, g: Tensor) -> Tensor:
    """A(g) table: for every row, the sum of the words its pairs name."""
    return F.embedding_bag(pairs.words, table, pairs.offsets[:-1], mode="sum", per_sample_weights=g)


def _sum_by_word(h: Tensor, pairs: Pairs, g: Tensor, size: int) -> Tensor:
    """A(g)ᵀ h: for every word, the sum of the rows whose pairs name it."""
    words, order = torch.sort(pairs.words, stable=True)
    begins = torch.searchsorted(words, torch.arange(size, device=words.device))
    return F.embedding_bag(pairs.rows[order], h, begins, mode="sum", per_sample_weights=g[order])
