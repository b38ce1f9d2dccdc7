"""Window positions: a learned number for each head and each step between two cells of a window, added to the scores.

    softmax    s_nm = q_n · k_m
    window     s_nm = q_n · k_m + r_h[y_n - y_m, x_n - x_m]

A window of wy x wx cells has (2 wy - 1)(2 wx - 1) different steps; the table has a row for each, and all windows of a
layer share it. Index n counts the cells row by row.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Rows, Tensor

Pair = tuple[int, int]


class WindowPositions(nn.Module):
    """A table of steps, of `window` cells: one number, or rows and columns."""

    kind: ClassVar[str] = "biased"

    def __init__(self, heads: int, window: int | Pair = 7) -> None:
        super().__init__()
        self.window = pair(window)
        self.table = nn.Parameter(torch.empty(self.steps, heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        cells = torch.arange(self.window[0] * self.window[1])
        self.register_buffer("pairs", self.step(cells[:, None], cells).flatten(), persistent=False)  # (N N)

    @property
    def steps(self) -> int:
        """How many different steps there are between two cells."""
        return (2 * self.window[0] - 1) * (2 * self.window[1] - 1)

    def row(self) -> Float[Tensor, "H S"]:
        """The bias of every step."""
        return self.table.T

    def forward(self) -> Float[Tensor, "H N N"]:
        """The bias between all cells of a window."""
        cells = self.window[0] * self.window[1]
        return self.row().index_select(1, self.pairs).unflatten(1, (cells, cells))

    def bias(self, queries: Int[Tensor, "#B N"], keys: Int[Tensor, "#B M"]) -> StepBias:
        """The bias between these cells."""
        self._check(queries)
        self._check(keys)
        return StepBias(self.row(), self.step(queries[:, :, None], keys[:, None]))

    def step(self, n: Int[Tensor, "*S"], m: Int[Tensor, "*S"]) -> Int[Tensor, "*S"]:
        """The row of the table for queries n and keys m."""
        (rows, columns), wide = self.window, self.window[1]
        down, right = n // wide - m // wide, n % wide - m % wide
        return (down + rows - 1) * (2 * columns - 1) + right + columns - 1

    def _check(self, index: Int[Tensor, "#B N"]) -> None:
        """Refuse cells that no window has. Not on a GPU: to read one there is to wait."""
        cells = self.window[0] * self.window[1]
        if index.device.type != "cpu" or torch.compiler.is_compiling() or not index.numel():
            return
        low, high = (int(i) for i in index.aminmax())
        if low < 0 or high >= cells:
            raise BadInput(f"cell {low if low < 0 else high} is not in a window of {cells}; they count from 0")

    def extra_repr(self) -> str:
        """How it was made."""
        return f"window={self.window}"


class StepBias:
    """The numbers of a row at these steps; a `core.where.Bias`."""

    def __init__(self, row: Float[Tensor, "H S"], steps: Int[Tensor, "#B N M"]) -> None:
        self.row, self.steps = row, steps

    def dense(self, rows: Rows = slice(None)) -> Float[Tensor, "#B H N M"]:
        """Looked up, for the asked rows."""
        steps = self.steps[:, rows]
        return self.row.index_select(1, steps.flatten()).unflatten(1, steps.shape).transpose(0, 1)

    def score(self) -> Callable[..., Tensor]:
        """The same as a FlexAttention ``score_mod(score, b, h, n, m)``."""
        many = self.steps.shape[0] > 1

        def add(score: Tensor, b: Tensor, h: Tensor, n: Tensor, m: Tensor) -> Tensor:
            return score + self.row[h, self.steps[b if many else 0, n, m]]

        return add


def pair(size: int | Pair) -> Pair:
    """Rows and columns, where one number stands for both."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])
