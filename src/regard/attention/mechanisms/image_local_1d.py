"""Image Transformer, local 1-D attention: a block of queries attends to itself and to a stretch of memory before it.

    softmax     o_n = Σ_m softmax_m(q_n·k_m / √D) v_m     all m                                         O(N M D)
    local 1-D                                             ⌊n/b⌋ b - l ≤ m < (⌊n/b⌋ + 1) b               O(N (b + l) D)

The pixels of an image stand in raster order. Queries are cut into blocks of b that do not overlap, and all queries of a
block share one memory: the block and the l tokens before it, so that a block is one dense product. When causal, later
tokens of the own block are masked. Without a causal mask (the paper has none here) l tokens after the block are read
too.

Parmar et al.: Image Transformer. ICML 2018. arXiv:1802.05751
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import Group, PatternAttention, SparsePattern, with_global_tokens
from regard.core.shapes import Tensor
from regard.core.validation import Count, Fraction


class ImageLocal1DAttention(PatternAttention):
    """Attention of blocks of `query_block` tokens to themselves and `memory` tokens beside them."""

    traits = Traits(
        cost="N (b + l) D",
        paper="1802.05751",
        square=True,
        positional=True,
        family="sparse by position",
        limit="query_block=16",
    )

    def __init__(
        self,
        query_block: int = 256,
        memory: Count = 256,
        prefix: Count = 0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        super().__init__(LocalPattern(query_block, memory, prefix), dropout, scale, backend)


@dataclass(frozen=True)
class LocalPattern(SparsePattern):
    """Blocks after `prefix` tokens that see all and are seen by all."""

    query_block: int
    memory: int
    prefix: int = 0

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        start = (n - self.prefix) // self.query_block * self.query_block + self.prefix
        ahead = 0 if causal else self.memory
        near = (m >= start - self.memory) & (m < start + self.query_block + ahead)
        return near | (n < self.prefix) | (m < self.prefix)

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        start = torch.arange(self.prefix, max(n, self.prefix), self.query_block, device=device)[:, None]
        ahead = 0 if causal else self.memory
        queries = start + torch.arange(self.query_block, device=device)
        keys = start + torch.arange(-self.memory, self.query_block + ahead, device=device)
        return with_global_tokens(queries, keys, self.prefix, n, causal)
