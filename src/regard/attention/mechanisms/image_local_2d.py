"""Image Transformer, local 2-D attention: a rectangle of queries attends to a larger rectangle around it.

    softmax     o_n = Σ_m softmax_m(q_n·k_m / √D) v_m     all m                                           O(N M D)
    local 2-D                                             m in the h × w cells of n's block, extended by
                                                          h_m rows and w_m columns                       O(N K D)
                                                          K = (h + h_m) (w + 2 w_m), causal

All queries of a block share one memory, so that a block is one dense product, and a pixel sees what is near it in the
image, not only in raster order. When causal, the memory lies above, to the left and to the right; without a causal mask
(the paper has none here) also below. Tokens before the grid (a class token) see all and are seen by all.

Tokens stand in raster order (order="raster") or, as in the paper, block after block, each of them in raster order
(order="blocks"): then a causal query also sees the lower rows of the block to its left. Without a grid the sequence is
read as rows of `columns` tokens.

Parmar et al.: Image Transformer. ICML 2018. arXiv:1802.05751
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import (
    FLEX_BLOCK,
    Group,
    PatternAttention,
    SparsePattern,
    columns_of_place,
    with_global_tokens,
)
from regard.core.errors import RegardError
from regard.core.shapes import Int, Pair, Tensor
from regard.core.validation import Count, Fraction, Range


class ImageLocal2DAttention(PatternAttention):
    """Attention of blocks of `query_block` rows and columns to themselves and `memory` rows and columns beside them."""

    traits = Traits(
        cost="N (h + h_m) (w + 2 w_m) D",
        paper="1802.05751",
        square=True,
        positional=True,
        family="sparse by position",
        limit="query_block=(16, 16)",
    )

    def __init__(
        self,
        query_block: Pair = (8, 8),
        memory: Annotated[Pair, Range(low=0)] = (8, 8),
        columns: int | None = None,
        order: Literal["raster", "blocks"] = "raster",
        grid: Pair | None = None,
        prefix: Count = 0,
        length: int | None = None,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        columns = columns_of_place(columns, grid, length)
        if order == "blocks" and (columns % query_block[1] or (grid and grid[0] % query_block[0])):
            size = f"{grid[0]} rows and {columns} columns" if grid else f"{columns} columns"
            raise RegardError(f"order='blocks' needs whole blocks of {query_block} cells, but the grid has {size}")
        pattern = RectanglePattern(query_block, memory, columns, prefix, order == "blocks")
        super().__init__(pattern, dropout, scale, backend)


@dataclass(frozen=True)
class RectanglePattern(SparsePattern):
    """Blocks of cells after `prefix` tokens that see all and are seen by all."""

    query_block: Pair
    memory: Pair
    columns: int
    prefix: int = 0
    by_blocks: bool = False  # whether tokens stand block after block

    @property
    def scattered(self) -> bool:
        return not self.by_blocks and 2 * self.columns > FLEX_BLOCK  # a block is a piece of few rows

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        (y, x), (at_y, at_x), (rows, columns) = self._cell(n), self._cell(m), self.query_block
        y, x = y // rows * rows, x // columns * columns
        below = 0 if causal else self.memory[0]
        near = (at_y >= y - self.memory[0]) & (at_y < y + rows + below)
        near = near & (at_x >= x - self.memory[1]) & (at_x < x + columns + self.memory[1])
        return near | (n < self.prefix) | (m < self.prefix)

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        (rows, columns), (above, beside), below = self.query_block, self.memory, 0 if causal else self.memory[0]
        height = -(-max(n - self.prefix, 0) // self.columns)
        y = torch.arange(0, height, rows, device=device)[:, None] + torch.arange(-above, rows + below, device=device)
        x = torch.arange(0, self.columns, columns, device=device)[:, None]
        x = x + torch.arange(-beside, columns + beside, device=device)
        y, x = y[:, None, :, None], x[:, None]  # blocks down, blocks across, rows, columns
        keys = torch.where((y >= 0) & (x >= 0) & (x < self.columns), self._token(y, x), -1).flatten(0, 1)
        queries = keys[:, above : above + rows, beside : beside + columns]
        return with_global_tokens(queries.flatten(1), keys.flatten(1), self.prefix, n, causal)

    def _cell(self, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row and the column of a token."""
        place = token - self.prefix
        if not self.by_blocks:
            return place // self.columns, place % self.columns
        return block_cell(place, self.query_block, self.columns)

    def _token(self, y: Tensor, x: Tensor) -> Tensor:
        """Return the token of a cell."""
        if not self.by_blocks:
            return y * self.columns + x + self.prefix
        rows, columns = self.query_block
        before = y // rows * rows * self.columns + x // columns * columns * rows
        return before + y % rows * columns + x % columns + self.prefix


def block_cell(
    place: Int[Tensor, "*any"], block: Pair, columns: int
) -> tuple[Int[Tensor, "*any"], Int[Tensor, "*any"]]:
    """Return row and column of the tokens at these places, where they stand block after block."""
    rows, across = block
    band, place = place // (rows * columns), place % (rows * columns)
    number, place = place // (rows * across), place % (rows * across)
    return band * rows + place // across, number * across + place % across
