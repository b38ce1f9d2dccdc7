"""Axial attention: a token attends along its row in one layer and along its column in the next.

    softmax    o_n = Σ_m softmax_m(q_n·k_m / √D) v_m      all m of Y X cells            O((Y X)² D)
    axial                                                 m in the row of n, or         O(Y X · X D)
                                                          in the column of n            O(Y X · Y D)

Two layers connect any two cells of the grid, and rows are independent sequences, so that one layer is dense attention
over a batch of rows or columns. Even layers attend along rows, odd ones along columns, unless `axis` says otherwise.
Tokens before the grid (a class token) see all and are seen by all. Without a grid the sequence is read as rows of
`columns` tokens.

When causal, both axes are masked: cells before n in its row, cells above it in its column. Not here: the shifts with
which the paper's image model lets unmasked row attention read all rows above; they belong to a model.

Ho, Kalchbrenner, Weissenborn, Salimans: Axial Attention in Multidimensional Transformers. 2019. arXiv:1912.12180
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import (
    Group,
    PatternAttention,
    SparsePattern,
    columns_of_place,
    with_global_tokens,
)
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.shapes import Pair, Tensor
from regard.core.validation import Count, Fraction


class AxialAttention(PatternAttention):
    """Attention along rows or columns; axis=None alternates by the depth of the layer, starting with rows."""

    traits = Traits(
        cost="N √N D",
        paper="1912.12180",
        square=True,
        positional=True,
        family="sparse by position",
        limit="axis='row', columns=16",
    )

    def __init__(
        self,
        axis: Literal["row", "column"] | None = None,
        columns: int | None = None,
        grid: Pair | None = None,
        prefix: Count = 0,
        length: int | None = None,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        columns = columns_of_place(columns, grid, length)
        patterns = [AxialPattern(along_column, columns, prefix) for along_column in (False, True)]
        super().__init__(patterns[axis == "column"], dropout, scale, backend)
        self.axis, self.patterns = axis, patterns

    def layer_pattern(self, layer_state: LayerState | None) -> SparsePattern:
        if self.axis is not None:
            return self.pattern
        if layer_state is None:
            raise Unsupported(
                "axial attention alternates between rows and columns by the depth of its layer, but got no LayerState; "
                "write axial(axis='row') or axial(axis='column')"
            )
        return self.patterns[layer_state.depth % 2]


@dataclass(frozen=True)
class AxialPattern(SparsePattern):
    """The cells of a row or of a column, after `prefix` tokens that see all and are seen by all."""

    along_column: bool
    columns: int
    prefix: int = 0

    @property
    def scattered(self) -> bool:
        return self.along_column

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        from_cell, to_cell = n - self.prefix, m - self.prefix
        if self.along_column:
            same = (from_cell - to_cell) % self.columns == 0
        else:
            same = from_cell // self.columns == to_cell // self.columns
        return same | (n < self.prefix) | (m < self.prefix)

    def groups(self, n: int, length: Tensor | int, causal: bool, heads: int, device: torch.device) -> list[Group]:
        rows = -(-max(n - self.prefix, 0) // self.columns)
        cells = torch.arange(rows * self.columns, device=device).view(rows, self.columns) + self.prefix
        cells = cells.T if self.along_column else cells
        return with_global_tokens(cells, cells, self.prefix, n, causal)
