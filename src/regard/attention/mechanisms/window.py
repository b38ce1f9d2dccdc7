"""Sliding window: a query attends to the keys near it, and to a few global tokens.

    softmax    o_n = Σ_m softmax_m(q_n·k_m / √D) v_m      all m                                        O(N M D)
    window                                                |n - m| ≤ w/2 · d and d divides n - m,
                                                          or m or n is a global token                  O(N (w + g) D)

A stack of L layers sees L w tokens, and a dilation d > 1 stretches that d times at the same cost. Global tokens, the
first g ones, see all tokens and are seen by all, so that any two tokens are two steps apart. When causal, the window is
that of the last w tokens, n itself included, and global tokens are seen by all later ones.

This is the pattern of Longformer with one set of projections; the mixer `longformer` has the second set that its
global tokens use. Differs from the paper: all heads have one dilation (`per_head` gives heads different ones, a list of
specs layers), and global tokens are the first ones instead of any.

Beltagy, Peters, Cohan: Longformer: The Long-Document Transformer. 2020. arXiv:2004.05150
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import Group, PatternAttention, SparsePattern, with_global_tokens
from regard.core.shapes import Tensor
from regard.core.validation import Count, Fraction

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 128  # queries that share their keys


class SlidingWindowAttention(PatternAttention):
    """Attention to about `window` keys: half of them on either side or, if causal, all of them before the query."""

    traits = Traits(
        cost="N (w + g) D",
        paper="2004.05150",
        square=True,
        positional=True,
        family="sparse by position",
        limit="window=32",
    )

    def __init__(
        self,
        window: int = 256,
        dilation: int = 1,
        global_tokens: Count = 0,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        super().__init__(WindowPattern(window, dilation, global_tokens), dropout, scale, backend)


@dataclass(frozen=True)
class WindowPattern(SparsePattern):
    """A window that may be dilated, and global tokens at the start."""

    window: int
    dilation: int = 1
    global_tokens: int = 0

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        back, ahead = self._reach(causal)
        steps = n - m
        near = (steps <= back * self.dilation) & (steps >= -ahead * self.dilation)
        near = near & (steps % self.dilation == 0) if self.dilation > 1 else near
        return near | (n < self.global_tokens) | (m < self.global_tokens)

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        """Tokens a multiple of the dilation apart form a sequence of their own, which is cut into blocks."""
        back, ahead = self._reach(causal)
        size = -(-n // self.dilation)
        block = max(1, min(size, max(SMALLEST_BLOCK, min(self.window, LARGEST_BLOCK))))
        start = torch.arange(0, size, block, device=device)[:, None]
        offset = torch.arange(self.dilation, device=device)[:, None, None]
        place = start + torch.arange(-back, block + ahead, device=device)  # blocks, places
        keys = (place * self.dilation + offset).flatten(0, 1)
        queries = keys[:, back : back + block]
        return with_global_tokens(queries, keys, self.global_tokens, n, causal, whole=False)

    def _reach(self, causal: bool) -> tuple[int, int]:
        """Return how many steps of the dilation it sees back and ahead."""
        return (self.window - 1, 0) if causal else (self.window // 2, self.window // 2)
