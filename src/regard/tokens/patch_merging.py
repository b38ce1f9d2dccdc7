"""Patch merging: 2 x 2 neighbouring tokens become one of twice the width, so that the grid is halved.

    Swin       W norm([x_00 x_10 x_01 x_11])        4C -> 2C, normed before
    Swin v2    norm(W [x_00 x_10 x_01 x_11])        normed after

A grid with an odd side is padded with zeros. `slots` gives the four cells that each new one is made of.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030; Swin Transformer V2. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.trace import Slots


class PatchMerging(nn.Module):
    """Concatenate, norm, project (Swin)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(self.norm_width(width))
        self.narrow = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Float[Tensor, "B Y X C"]) -> Float[Tensor, "B Y2 X2 D"]:
        out: Tensor = self.narrow(self.norm(space_to_depth(x)))
        return out

    def slots(self, x: Float[Tensor, "B Y X C"]) -> Slots:
        """Return the four cells of each new one, with a share of 1/4 each; -1 is padding."""
        grid = (x.shape[1], x.shape[2])
        cells = torch.arange(1, grid[0] * grid[1] + 1, device=x.device).view(1, *grid, 1)
        found = space_to_depth(cells).flatten(1, 2)[:, None] - 1
        return Slots(found, grid, torch.full((), 0.25, device=x.device).expand(found.shape))

    @staticmethod
    def norm_width(width: int) -> int:
        return 4 * width


class PatchMergingV2(PatchMerging):
    """Concatenate, project, norm (Swin v2)."""

    def forward(self, x: Float[Tensor, "B Y X C"]) -> Float[Tensor, "B Y2 X2 D"]:
        out: Tensor = self.norm(self.narrow(space_to_depth(x)))
        return out

    @staticmethod
    def norm_width(width: int) -> int:
        return 2 * width


def space_to_depth(x: Tensor) -> Tensor:
    """Concatenate the cells of each 2 x 2 square, column by column: B Y X C -> B Y/2 X/2 4C, padded with zeros."""
    if x.shape[1] % 2 or x.shape[2] % 2:
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
    b, y, x_, c = x.shape
    return x.view(b, y // 2, 2, x_ // 2, 2, c).permute(0, 1, 3, 4, 2, 5).flatten(3)
