"""Sparse Transformer, fixed pattern: a query attends to its own block and to the last places of every block.

    softmax    o_n = Σ_m softmax_m(q_n·k_m / √D) v_m      all m                                    O(N M D)
    fixed                                                 ⌊m/l⌋ = ⌊n/l⌋, or m mod l ≥ l - c        O(N (l + c N/l) D)

The last c places of a block of l tokens summarise it: they see the whole block, and all later tokens see them. With l
near √N the cost is N √N. Suited to text, where places one row apart, as in the strided pattern, have no relation.

Both parts are one softmax (the paper's merged head); a list of specs, one for each layer, alternates other mechanisms
with it. The paper's heads read different places of a block: `per_head` of specs with several values of `offset`, the
places behind those that are read. Without a causal mask, blocks on both sides are read.

Child, Gray, Radford, Sutskever: Generating Long Sequences with Sparse Transformers. 2019. arXiv:1904.10509
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import Group, PatternAttention, SparsePattern, tokens_or_none
from regard.core.errors import RegardError
from regard.core.shapes import Tensor
from regard.core.validation import Count, Fraction


class SparseFixedAttention(PatternAttention):
    """Attention within blocks of `stride` tokens and to the last `summary` tokens of every block."""

    traits = Traits(
        cost="N (l + c N / l) D",
        paper="1904.10509",
        square=True,
        positional=True,
        family="sparse by position",
        limit="stride=16",
    )

    def __init__(
        self,
        stride: int = 128,
        summary: int = 8,
        offset: Count = 0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        if summary > stride:
            raise RegardError(f"summary must be 1 to {stride}, the tokens of a block (stride), got {summary}")
        if offset > stride - summary:
            raise RegardError(f"offset must be 0 to {stride - summary}, before which there is no summary, got {offset}")
        super().__init__(FixedPattern(stride, summary, offset), dropout, scale, backend)


@dataclass(frozen=True)
class FixedPattern(SparsePattern):
    """Blocks, and the last places of each, or those `offset` before them."""

    stride: int
    summary: int
    offset: int = 0

    @property
    def scattered(self) -> bool:
        return True  # every block has its last places

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        begin, end = self._summary()
        place = m % self.stride
        return (n // self.stride == m // self.stride) | ((place >= begin) & (place < end))

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        block = torch.arange(-(-n // self.stride), device=device)[:, None]
        own = tokens_or_none(block * self.stride + torch.arange(self.stride, device=device), 0, n)
        last = (block * self.stride + torch.arange(*self._summary(), device=device)).flatten()
        elsewhere = torch.where(last // self.stride == block, -1, tokens_or_none(last, 0, n))
        return [Group(own[None], torch.cat([own, elsewhere], 1)[None, None])]

    def _summary(self) -> tuple[int, int]:
        """Return the places of a block that all tokens see: from, to."""
        end = self.stride - self.offset
        return end - self.summary, end
