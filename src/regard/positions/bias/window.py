"""Window bias: a learned number for each head and each relative position of two cells of a window, added to the scores.

    softmax    s_nm = q_n · k_m
    window     s_nm = q_n · k_m + r_h[y_n - y_m, x_n - x_m]

A window of wy x wx cells has (2 wy - 1)(2 wx - 1) relative positions; the table has a row for each, and all windows of
a layer share it. Cells are numbered row by row.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from regard.core.shapes import Float, Size, Tensor, pair
from regard.positions.traits import PositionTraits


class WindowBias(nn.Module):
    """Base of biases that depend on the relative position of two cells; a subclass writes `bias_table`."""

    kind: ClassVar[str] = "bias"
    relative_position_index: Tensor

    def __init__(self, window: Size) -> None:
        super().__init__()
        self.window = pair(window)
        (rows, columns), n = self.window, torch.arange(self.window[0] * self.window[1])
        y, x = n // columns, n % columns
        index = (y[:, None] - y + rows - 1) * (2 * columns - 1) + x[:, None] - x + columns - 1
        self.register_buffer("relative_position_index", index.flatten(), persistent=False)  # (N N), rows of the table

    def bias_table(self) -> Float[Tensor, "H S"]:
        """Return the bias of every relative position, from the farthest up and left to the farthest down and right."""
        raise NotImplementedError

    def forward(self) -> Float[Tensor, "H N N"]:
        """Return the bias between all cells of a window: queries by keys."""
        cells = self.window[0] * self.window[1]
        return self.bias_table().index_select(1, self.relative_position_index).unflatten(1, (cells, cells))

    def extra_repr(self) -> str:
        return f"window={self.window}"


class TableWindowBias(WindowBias):
    """A learned table; `window` is the side of a window in cells, or (rows, columns)."""

    traits: ClassVar = PositionTraits("window", learned="table", other_sizes="refused", invariant=frozenset({"shift"}))
    no_weight_decay = ("table",)

    def __init__(self, heads: int, window: Size = 7) -> None:
        super().__init__(window)
        rows, columns = self.window
        self.table = nn.Parameter(torch.empty((2 * rows - 1) * (2 * columns - 1), heads))
        nn.init.trunc_normal_(self.table, std=0.02)

    def bias_table(self) -> Float[Tensor, "H S"]:
        return self.table.T
