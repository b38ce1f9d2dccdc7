"""Synthesizer: attention weights without comparing tokens with one another.

    softmax                         w = softmax(s),   s_nm = q_n·k_m / √D                              O(N M D)
    synthesizer_dense               s_nm = relu(q_n)·W_m + b_m                                         O(N M D)
    synthesizer_factorised_dense    s_nm = a(q_n)_i b(q_n)_j,   m = i + j rows                         O(N M E)
    synthesizer_random              s_nm = R_nm                                                        O(N M E)
    synthesizer_factorised_random   s_nm = (R_1 R_2^T)_nm                                              O(N M (E + r))

Dense: each token predicts, from itself alone, how much it attends to every place up to `length`. Random: one matrix for
all texts, learned (or kept as drawn, `trainable=False`). Both show how much of attention is a habit of places. Factors
make the two smaller: of the length as a product of two numbers, or of the matrix by rank.

The first layer of the dense networks is the query projection, as in the authors' code: relu(q), q = x W_q + b_q.
Differs from the paper: the longer of two factors is i, the other j, so that each m has a pair of its own, where the
paper leaves the order of its two tilings open. The dense ones are given keys as ever, and ignore them. No mixture with
dot products.

Tay, Bahri, Metzler, Juan, Zhao, Zheng: Synthesizer: Rethinking Self-Attention in Transformer Models. ICML 2021.
arXiv:2005.00743
"""

from __future__ import annotations

import math

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.dense import PlacedAttention, fixed_scores, token_positions
from regard.attention.protocol import Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.validation import Fraction


def _traits(cost: str) -> Traits:
    return Traits(
        cost=cost,
        paper="2005.00743",
        exact=False,
        headwise=False,
        square=True,
        positional=True,
        family="with a prior",
    )


class DenseSynthesizer(PlacedAttention):
    """Each token predicts its scores for all places."""

    traits = _traits("N M D")

    def __init__(self, heads: int, head_dim: int, length: int | None, dropout: Fraction = 0.0) -> None:
        super().__init__(length, dropout)
        self.weight = nn.Parameter(torch.randn(heads, head_dim, self.length) * head_dim**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, self.length))

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        _, keys = token_positions(q, k, mask, rows)
        return _pick(_predict(q[:, :, rows], self.weight, self.bias), keys)


class FactorisedDenseSynthesizer(PlacedAttention):
    """Each token predicts two short rows of scores, whose products are those of all places."""

    traits = _traits("N M E")

    def __init__(self, heads: int, head_dim: int, length: int | None, dropout: Fraction = 0.0) -> None:
        super().__init__(length, dropout)
        self.rows = math.ceil(self.length**0.5)
        columns = -(-self.length // self.rows)
        self.weight_a = nn.Parameter(torch.randn(heads, head_dim, self.rows) * head_dim**-0.5)
        self.weight_b = nn.Parameter(torch.randn(heads, head_dim, columns) * head_dim**-0.5)
        self.bias_a = nn.Parameter(torch.zeros(heads, self.rows))
        self.bias_b = nn.Parameter(torch.zeros(heads, columns))

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        _, keys = token_positions(q, k, mask, rows)
        a = _predict(q[:, :, rows], self.weight_a, self.bias_a)
        b = _predict(q[:, :, rows], self.weight_b, self.bias_b)
        return _pick(a, keys % self.rows) * _pick(b, keys // self.rows)


class _FixedSynthesizer(PlacedAttention):
    """Base class: the scores are those of all texts, and so are the weights unless the mask differs."""

    default_projection = "value"

    def weight_matrix(
        self, scores: Tensor, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        return super().weight_matrix(fixed_scores(scores, mask), q, k, mask, bias, rows).expand(scores.shape)


class RandomSynthesizer(_FixedSynthesizer):
    """One matrix of scores for all texts; `trainable=False` keeps it as drawn."""

    traits = _traits("N M E")

    def __init__(self, heads: int, length: int | None, trainable: bool = True, dropout: Fraction = 0.0) -> None:
        super().__init__(length, dropout)
        self.matrix = nn.Parameter(torch.randn(heads, self.length, self.length), requires_grad=trainable)

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        queries, keys = token_positions(q, k, mask, rows)
        scores = self.matrix[:, queries[:, :, None], keys[:, None]].transpose(0, 1)
        return upcast(scores).expand(q.shape[0], -1, -1, -1)


class FactorisedRandomSynthesizer(_FixedSynthesizer):
    """One matrix of scores of rank `rank` for all texts; `trainable=False` keeps its factors as drawn."""

    traits = _traits("N M (E + r)")

    def __init__(
        self, heads: int, length: int | None, rank: int = 8, trainable: bool = True, dropout: Fraction = 0.0
    ) -> None:
        super().__init__(length, dropout)
        self.left, self.right = (
            nn.Parameter(torch.randn(heads, self.length, rank) * rank**-0.25, requires_grad=trainable) for _ in "12"
        )

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        queries, keys = token_positions(q, k, mask, rows)
        scores = self.left[:, queries].transpose(0, 1) @ self.right[:, keys].transpose(0, 1).mT
        return upcast(scores).expand(q.shape[0], -1, -1, -1)


def _predict(
    q: Float[Tensor, "B H N D"], weight: Float[Tensor, "H D L"], bias: Float[Tensor, "H L"]
) -> Float[Tensor, "B H N L"]:
    return upcast(q.relu() @ weight.to(q.dtype)) + upcast(bias)[:, None]


def _pick(scores: Float[Tensor, "B H N L"], keys: Int[Tensor, "#B M"]) -> Float[Tensor, "B H N M"]:
    """Return the scores of the places at which the keys stand."""
    return scores.gather(-1, keys[:, None, None].expand(*scores.shape[:3], -1))
