"""Sparse Sinkhorn attention: a learned sorting brings distant blocks of keys next to each block of queries.

    softmax     o_n = Σ_m w_nm v_m        over all m                                                  O(N M D)
    sinkhorn    the same over the block of n and one sorted block: P K and P V, mixed block by block   O(N (w + N/w) D)
                P = Sinkhorn(R / τ): rows and columns of exp(R / τ) normalised in turn, almost a permutation
                R_i = relu(W_2 relu(W_1 Σ_{m in block i} k_m + b_1) + b_2), a score for each block

Local attention cannot see far; after sorting, what is far may be near. The soft permutation is differentiable, so the
sorting is learned with the rest; blocks of √N tokens balance both terms.

Causal: block i sees earlier blocks only (P is strictly lower triangular), and R_i is made of the sum of all keys up to
the first of the block. Columns are normalised over all later blocks, as in the paper, so outputs depend on later keys
(not on values), and the mechanism does not decode step by step.

Differs from the paper: the sorting network reads keys instead of the layer's inputs, and its Gumbel noise in training
is off by default (`noise`). The own and the sorted block are two sets of keys under one softmax, as in public
implementations; the paper adds their scores. A block's padding takes no part in sorted blocks. SortCut is `sortcut`.

Tay, Bahri, Yang, Metzler, Juan: Sparse Sinkhorn Attention. ICML 2020. arXiv:2002.11296
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.gather import true_lengths
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Bool, Float, Tensor
from regard.core.validation import Fraction, Range

MASKED = -1e9  # log of a forbidden entry of the permutation


class SinkhornAttention(Mechanism):
    """Attention to the own block and to a sorted one.

    Args:
        heads, head_dim: sizes of the place; every head has its own sorting network.
        block: number w of tokens of a block; None: √length.
        length: maximum length of the place, which the sorting network's outputs are for; None: 4096.
        iterations: of Sinkhorn's normalisation.
        temperature: τ; the lower, the closer to a permutation.
        noise: factor of the Gumbel noise added to R in training; 1 in the paper.
        dropout, scale: of the attention weights and of the scores (None: 1/√D).
    """

    traits = Traits(
        cost="N √N D",  # with blocks of √N, the default
        paper="2002.11296",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        causality="values",
        rowwise=False,
        headwise=False,
        normalised=False,
        square=True,
        positional=True,
        family="sparse by content",
        limit="block=16",
        budget="block",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        block: int | None = None,
        length: int | None = None,
        iterations: int = 7,
        temperature: Annotated[float, Range(above=0)] = 0.75,
        noise: Annotated[float, Range(low=0)] = 0.0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.block = block or max(round(math.sqrt(length or 4096)), 1)
        self.iterations, self.temperature, self.noise = iterations, temperature, noise
        self.dropout, self.scale = dropout, scale
        self.most = math.ceil((length or 4096) / self.block)  # blocks
        self.first = nn.Parameter(torch.empty(heads, head_dim, head_dim).normal_(std=head_dim**-0.5))
        self.first_bias = nn.Parameter(torch.zeros(heads, 1, head_dim))
        self.second = nn.Parameter(torch.empty(heads, head_dim, self.most).normal_(std=head_dim**-0.5))
        self.second_bias = nn.Parameter(torch.zeros(heads, 1, self.most))

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (b, h, n, d), w = q.shape, self.block
        self.check_blocks(n)
        causal = mask is not None and "causal" in mask.kinds
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        q, k, v = (F.pad(x, (0, 0, 0, -n % w)).unflatten(2, (-1, w)) for x in (q, k, v))  # B H N/w w D
        place = torch.arange(q.shape[2] * w, device=q.device).view(-1, w)
        real = (place < true_lengths(mask, b, n, q.device)[:, None, None])[:, None]  # B 1 N/w w
        k, v = k * real[..., None], v * real[..., None]
        pairs = block_pairs(real.any(-1), causal)  # B 1 N/w N/w
        order = self.permutation(k, pairs, causal)
        near_k, near_v = (torch.cat([torch.einsum("bhij,bhjpd->bhipd", order.to(x.dtype), x), x], 3) for x in (k, v))
        sorted_ones = (pairs.to(k.dtype) @ real.to(k.dtype) > 0)[..., None, :].expand(-1, -1, -1, w, -1)
        own = real[..., None, :] & (place[0] <= place[0][:, None]) if causal else real[..., None, :]
        allowed = torch.cat([sorted_ones, own.expand_as(sorted_ones)], -1)
        scores = (q * (d**-0.5 if self.scale is None else self.scale)) @ near_k.mT
        weights = masked_softmax(scores, allowed).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return (weights @ near_v).flatten(2, 3)[:, :, :n]

    def check_blocks(self, n: int) -> None:
        """Raise `Unsupported` for more tokens than can be sorted."""
        if n > self.most * self.block:
            raise Unsupported(
                f"this {type(self).__name__} sorts up to {self.most} blocks of {self.block} tokens, got {n} tokens; "
                "build it with a larger length or block"
            )

    def permutation(
        self, k: Float[Tensor, "B H I w D"], pairs: Bool[Tensor, "B 1 I I"], causal: bool
    ) -> Float[Tensor, "B H I I"]:
        """Return the soft permutation of the blocks; row i is what block i gets."""
        tokens = upcast(k)
        pooled = tokens.sum(3)
        if causal:  # all tokens of earlier blocks and the first of the own
            pooled = pooled.cumsum(2) - pooled + tokens[:, :, :, 0]
        hidden = F.relu(pooled @ self.first.to(pooled.dtype) + self.first_bias)
        r = F.relu(hidden @ self.second[..., : k.shape[2]].to(pooled.dtype) + self.second_bias[..., : k.shape[2]])
        if self.noise and self.training:
            r = r - self.noise * torch.empty_like(r).exponential_().log()  # Gumbel
        r = (r / self.temperature).masked_fill(~pairs, MASKED)
        for step in range(2 * self.iterations):  # rows, then columns
            r = (r - r.logsumexp(-1 - step % 2, keepdim=True)).masked_fill(~pairs, MASKED)
        return r.exp() * pairs

    def extra_repr(self) -> str:
        return f"block={self.block}, iterations={self.iterations}, temperature={self.temperature}"


def block_pairs(real: Bool[Tensor, "B 1 I"], causal: bool) -> Bool[Tensor, "B 1 I I"]:
    """Which blocks may be sorted to which: real ones, and only earlier ones if causal."""
    pairs = real[..., None] & real[..., None, :]
    return pairs.tril(-1) if causal else pairs
