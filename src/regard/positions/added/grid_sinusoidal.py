"""Sinusoidal positions of a grid: half of a vector says the row, half the column.

    p(y, x) = [s(y), s(x)]        s: the sines and cosines of `SinusoidalPositions`, of half the width
    row i of Y real rows          y = 2π (i + 1 - offset) / Y

Coordinates go from 0 to 2π whatever the size of the image, so that "half-way down" has one vector. Rows and columns
beyond an image's own size are padding, which a mask hides. DETR adds these vectors to the inputs of q and k in every
layer.

Parmar et al.: Image Transformer. ICML 2018. arXiv:1802.05751; Carion et al.: End-to-End Object Detection with
Transformers. ECCV 2020. arXiv:2005.12872
"""

from __future__ import annotations

from math import pi
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import Range
from regard.positions.added.sinusoidal import SinusoidalPositions
from regard.positions.traits import PositionTraits


class AddedSinusoidalGridPositions(nn.Module):
    """Add the vectors of the cells' centres to the tokens of a grid; tokens before it (`prefix`) get none.

    With a small `base` all frequencies are low (10: from a tenth of a period to one period over the image), so that
    "further to the left" is nearly a direction in space, which a model finds far sooner than in a table.
    """

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("grid", invariant=frozenset({"shift", "resolution"}))

    def __init__(
        self,
        width: int,
        grid: tuple[int, int],
        prefix: Annotated[int, Range(low=0)] = 0,
        base: Annotated[float, Range(above=0)] = 10000.0,
    ) -> None:
        super().__init__()
        self.points = SinusoidalGridPositions(width, base)

    def forward(self, x: Float[Tensor, "B N C"], grid: tuple[int, int]) -> Float[Tensor, "B N C"]:
        """Add positions to the tokens of the grid, row by row, which stand behind all others."""
        return x + self.vectors(grid, x.shape[1] - grid[0] * grid[1], x.device).to(x.dtype)

    def vectors(
        self, grid: tuple[int, int], before: int = 0, device: torch.device | None = None
    ) -> Float[Tensor, "N C"]:
        """Return the vectors of a grid with `before` tokens before it."""
        rows, columns = ((torch.arange(n, device=device, dtype=torch.float32) + 0.5) / n for n in grid)
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        return F.pad(self.points.vectors(torch.stack([x, y], -1).flatten(0, 1)), (0, 0, before, 0))


class SinusoidalGridPositions(nn.Module):
    """Vectors of the cells of grids, or of any points; `offset` 0.5: of the centres of cells (Deformable DETR)."""

    def __init__(
        self,
        width: int,
        base: Annotated[float, Range(above=0)] = 10000.0,
        offset: Annotated[float, Range(low=0, below=1)] = 0.0,
    ) -> None:
        super().__init__()
        if width % 4:
            raise BadInput(f"sines and cosines of rows and columns need a width divisible by 4, got {width}")
        self.offset = offset
        self.side = SinusoidalPositions(width // 2, base=base)

    def forward(
        self, sizes: Int[Tensor, "#B 2"], grid: tuple[int, int], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "#B N C"]:
        """Return the vectors of all cells, row by row; `sizes` are the real rows and columns of each grid."""
        exact = torch.promote_types(dtype, torch.float32)
        y, x = (self.side.vectors(each, exact).to(dtype) for each in self._coordinates(sizes, grid, exact))
        y, x = y[:, :, None].expand(-1, -1, grid[1], -1), x[:, None].expand(-1, grid[0], -1, -1)
        return torch.cat([y, x], -1).flatten(1, 2)

    def vectors(self, points: Float[Tensor, "*B 2"]) -> Float[Tensor, "*B C"]:
        """Return the vectors of points (x, y), fractions of the image."""
        x, y = (self.side.vectors(2 * pi * each, points.dtype) for each in points.unbind(-1))
        return torch.cat([y, x], -1)

    def _coordinates(
        self, sizes: Int[Tensor, "#B 2"], grid: tuple[int, int], exact: torch.dtype
    ) -> tuple[Float[Tensor, "#B Y"], Float[Tensor, "#B X"]]:
        rows, columns = (
            (torch.arange(1, n + 1, device=sizes.device).clamp(max=real[:, None]) - self.offset)
            * (2 * pi / (real[:, None].to(exact) + 1e-6))
            for real, n in zip(sizes.unbind(1), grid, strict=True)
        )
        return rows, columns
