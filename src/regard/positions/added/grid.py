"""Grid positions: one learned vector for each cell of a Y × X grid, interpolated for grids of other sizes.

    p = [P_prefix, R_Y P_grid R_Xᵀ]        x + p        P_grid: the grid of the training images

R_Y and R_X are the weights of a bicubic (or bilinear, as in DPT) resize of rows and of columns. `antialias` smooths
where the grid shrinks, as in timm; without it the cubic has another coefficient too, as in transformers. At the
training size the table is added unchanged. Tokens before the grid (class, distillation) have `prefix` rows of their
own, which are never resized; further ones get zeros.

Dosovitskiy et al.: An Image is Worth 16x16 Words, section 3.2. ICLR 2021. arXiv:2010.11929
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import Range
from regard.positions.traits import PositionTraits


class GridPositions(nn.Module):
    """Add a row of a learned table to every token of a grid and to the prefix tokens."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("grid", learned="table", other_sizes="resized")
    no_weight_decay = ("table",)

    def __init__(
        self,
        width: int,
        grid: tuple[int, int],
        prefix: Annotated[int, Range(low=0)] = 0,
        antialias: bool = True,
        interpolation: Literal["bicubic", "bilinear"] = "bicubic",
    ) -> None:
        super().__init__()
        self.grid, self.prefix = (grid[0], grid[1]), prefix
        self.interpolation, self.antialias = interpolation, antialias
        self.table = nn.Parameter(torch.empty(prefix + grid[0] * grid[1], width))
        nn.init.trunc_normal_(self.table, std=0.02)

    def forward(self, x: Float[Tensor, "B N C"], grid: tuple[int, int]) -> Float[Tensor, "B N C"]:
        """Add positions to prefix tokens and, after them, the tokens of the grid, row by row."""
        return x + self.vectors(grid, x.shape[1] - grid[0] * grid[1]).to(x.dtype)

    def vectors(self, grid: tuple[int, int], before: int = 0) -> Float[Tensor, "N C"]:
        """Return the vectors of a grid of this size with `before` tokens before it."""
        trained = not any(isinstance(n, torch.SymInt) for n in grid) and tuple(grid) == self.grid
        table = self.table if trained else torch.cat([self.table[: self.prefix], self._resize(grid)])
        return F.pad(table, (0, 0, before - self.prefix, 0)) if before != self.prefix else table

    def _resize(self, grid: tuple[int, int]) -> Float[Tensor, "N C"]:
        if 0 in grid:
            raise BadInput(f"a grid needs at least one row and one column, got {grid[0]} x {grid[1]}")
        wide = torch.promote_types(self.table.dtype, torch.float32)  # half precision is too coarse to interpolate in
        image = self.table[self.prefix :].unflatten(0, self.grid).to(wide)
        rows, columns = (self._resize_matrix(old, new, image) for old, new in zip(self.grid, grid, strict=True))
        with torch.autocast(image.device.type, enabled=False):
            resized = torch.einsum("yh,hwc,xw->yxc", rows, image, columns)
        return resized.flatten(0, 1).to(self.table.dtype)

    @torch.no_grad()
    def _resize_matrix(self, old: int, new: int, like: Tensor) -> Float[Tensor, "new old"]:
        """Return the matrix of a resize along one side: the resized identity."""
        units, mode = torch.eye(old, dtype=like.dtype, device=like.device)[None, None], self.interpolation
        resized = F.interpolate(units, size=(new, old), mode=mode, align_corners=False, antialias=self.antialias)
        return resized[0, 0]
