"""Local attention in blocks: a sequence is cut into blocks, and tokens attend within their own.

    softmax         o_n = Σ_m softmax_m(q_n·k_m / √D) v_m      all m                          O(N M D)
    local blocks                                               ⌊m / b⌋ = ⌊n / b⌋              O(N b D)

Cost grows with the number of blocks only. Nothing passes between blocks, so layers of it alternate with others: the
paper has local, compressed, local, compressed, local, which here is a list of specs, one for each layer,
``attention=["local_blocks", "memory_compressed"]``.

Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser, Shazeer: Generating Wikipedia by Summarizing Long Sequences. ICLR 2018.
arXiv:1801.10198
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import Group, PatternAttention, SparsePattern, tokens_or_none
from regard.core.shapes import Tensor
from regard.core.validation import Fraction


class LocalBlockAttention(PatternAttention):
    """Attention within consecutive blocks of `block` tokens."""

    traits = Traits(
        cost="N b D",
        paper="1801.10198",
        square=True,
        positional=True,
        family="sparse by position",
        limit="block=16",
    )

    def __init__(
        self,
        block: int = 256,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        super().__init__(BlockPattern(block), dropout, scale, backend)


@dataclass(frozen=True)
class BlockPattern(SparsePattern):
    """Tokens of the same block."""

    block: int

    @property
    def grain(self) -> int:
        return self.block

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        return n // self.block == m // self.block

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        size = min(self.block, n)
        blocks = torch.arange(0, n, size, device=device)[:, None] + torch.arange(size, device=device)
        tokens = tokens_or_none(blocks, 0, n)
        return [Group(tokens[None], tokens[None, None])]
