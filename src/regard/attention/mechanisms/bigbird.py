"""BigBird: blocks of queries attend to blocks of keys: their neighbours, the first and the last, and a few random ones.

    softmax    o_n = Σ_m softmax_m(q_n·k_m / √D) v_m    all m                                  O(N M D)
    bigbird                                             block of m: at most w/2 from that of n,
                                                        global, or one of r random ones        O(N (w+2g+r) b D)

Window, global and random blocks together make a sparse graph in which any two tokens are a few steps apart. Blocks of b
tokens, not tokens, are chosen, so that each block of queries is one dense product with the keys gathered for it. The
first g and the last g blocks are global: they see all tokens and are seen by all. Random blocks differ between heads
and layers; they come from a hash of seed, layer, head and block, so they need no storage and are the same everywhere.

Differs from the paper: random block r is drawn from the r-th part of the blocks that are neither near nor global, so
that no block is drawn twice; in padded sequences the last real block is global, and random blocks are real ones, so
that padding changes nothing. When causal (the paper's decoders use full attention) only the first blocks are global,
the window looks back, and random blocks are earlier ones.

Zaheer et al.: Big Bird: Transformers for Longer Sequences. NeurIPS 2020. arXiv:2007.14062
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import Group, PatternAttention, SparsePattern, tokens_or_none
from regard.core.layer_state import LayerState
from regard.core.shapes import Tensor
from regard.core.validation import Count, Fraction

LAYERS = 128  # after so many, random blocks are repeated


class BigBirdAttention(PatternAttention):
    """Attention between blocks of `block` tokens; `window_blocks` counts the neighbours and the block itself."""

    traits = Traits(
        cost="N (w + 2 g + r) b D",
        paper="2007.14062",
        headwise=False,  # the random blocks of a head are its own
        square=True,
        positional=True,
        family="sparse by position",
        limit="block=16",
    )

    def __init__(
        self,
        block: int = 64,
        random_blocks: Count = 3,
        window_blocks: int = 3,
        global_blocks: Count = 1,
        seed: Count = 0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        pattern = BigBirdPattern(block, random_blocks, window_blocks // 2, global_blocks, seed)
        super().__init__(pattern, dropout, scale, backend)
        self.patterns = [replace(pattern, seed=_hash(seed * LAYERS + depth)) for depth in range(LAYERS)]

    def layer_pattern(self, layer_state: LayerState | None) -> BigBirdPattern:
        return self.patterns[0 if layer_state is None else layer_state.depth % LAYERS]


@dataclass(frozen=True)
class BigBirdPattern(SparsePattern):
    """Near, global and random blocks; `near` counts the blocks on either side (before, if causal)."""

    block: int
    random_blocks: int
    near: int
    global_blocks: int
    seed: int

    looks_at_lengths = True
    tabulated = True

    @property
    def grain(self) -> int:
        return self.block

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        from_block, to_block, blocks = n // self.block, m // self.block, -(-length // self.block)
        steps, g = to_block - from_block, self.global_blocks
        found = (steps >= -self.near) & (steps <= self.near) | (to_block < g)
        if not causal:
            found = found | (from_block < g) | (to_block >= blocks - g)
            found = found | (from_block >= blocks - g) & (from_block < blocks)
        for r in range(self.random_blocks):
            found = found | (to_block == self.random_block(r, h, from_block, blocks, causal))
        return found

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        """One group for each block of queries, and one for all the queries that see everything."""
        g, places = self.global_blocks, torch.arange(self.block, device=device)
        i = torch.arange(-(-n // self.block), device=device)[:, None]  # blocks of queries
        h = torch.arange(heads, device=device).view(1, -1, 1, 1)
        blocks = torch.as_tensor(-(-length // self.block), device=device).view(-1, 1, 1, 1)
        first = torch.arange(g, device=device).expand(1, 1, len(i), g)
        near = i + torch.arange(-self.near, 1 if causal else self.near + 1, device=device)
        near = torch.where((near >= g) & (causal | (near < blocks - g)), near, -1)
        random = [self.random_block(r, h, i, blocks, causal) for r in range(self.random_blocks)]
        queries = tokens_or_none(i * self.block + places, 0, n)
        if causal:
            return [Group(queries[None], self._tokens([first, near, *random], n))]
        last = blocks - g + torch.arange(g, device=device)
        last = torch.where(last >= g, last, -1).expand(-1, 1, len(i), g)  # those that are not among the first
        others = (i >= g) & ((i < blocks - g) | (i >= blocks))
        see_all = self._tokens([first[:, :, :1], last[:, :, :1]], n)[:, 0]
        return [
            Group(see_all, torch.arange(n, device=device)[None, None, None]),
            Group(torch.where(others, queries, -1)[:, 0], self._tokens([first, near, last, *random], n)),
        ]

    def _tokens(self, tables: list[Tensor], n: int) -> Tensor:
        """Return the tokens of blocks, which are given in several tables, #B #H G blocks."""
        batch, heads = (max(x.shape[axis] for x in tables) for axis in (0, 1))
        table = torch.cat([x.expand(batch, heads, -1, -1) for x in tables], -1)[..., None]
        tokens = table * self.block + torch.arange(self.block, device=table.device)
        return torch.where((table >= 0) & (tokens < n), tokens, -1).flatten(-2)

    def random_block(self, r: int, h: Tensor, i: Tensor, blocks: Tensor | int, causal: bool) -> Tensor:
        """Return the r-th random block of keys for block i of the queries of head h; -1 if none is left to draw."""
        first = self.global_blocks
        if causal:  # from the first block that is not global to the last one before the window
            near, skipped = i, torch.zeros_like(i)
            count = (i - self.near - first).clamp(min=0)
        else:  # around the window
            end = torch.as_tensor(blocks - self.global_blocks, device=i.device)
            near = (i - self.near).clamp(min=first)
            skipped = (torch.minimum(i + self.near + 1, end) - near).clamp(min=0)
            count = (end - first - skipped).clamp(min=0)
        low, high = count * r // self.random_blocks, count * (r + 1) // self.random_blocks
        drawn = low + _hash(_hash(_hash(h + self.seed) + i) + r) % (high - low).clamp(min=1) + first
        return torch.where(high > low, torch.where(drawn >= near, drawn + skipped, drawn), -1)


def _hash(x: Any) -> Any:
    """Mix the lower 32 bits of integers (the constants are those of lowbias32, by Wellons)."""
    x = x & 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)
