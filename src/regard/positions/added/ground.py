"""Ground-sample-distance positions: a sinusoidal code of where a patch is on the ground, not in the picture.

    p(n) = s(g / G · n)        n: row (or column) of the patch, g: metres of a pixel, G: metres at which g / G = 1

A picture of the same place at half the resolution has half as many patches, each twice as large; in metres they are at
the same places and get the same codes. Centres of patches are used (n + 1/2, times the pixels of a patch), so that this
is exact: a coarse patch lies in the middle of its four fine ones.

What differs from the paper: centres instead of indices, which agree only at the corner of the picture.

Reed et al.: Scale-MAE: A Scale-Aware Masked Autoencoder for Multiscale Geospatial Representation Learning. ICCV 2023.
arXiv:2212.14532
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import Range
from regard.positions.added.sinusoidal import SinusoidalPositions
from regard.positions.traits import PositionTraits


class GroundPositions(nn.Module):
    """Vectors of the patches of pictures whose pixels have a size on the ground."""

    kind: ClassVar[str] = "added"
    traits: ClassVar = PositionTraits("ground", invariant=frozenset({"shift", "resolution"}))

    def __init__(
        self,
        width: int,
        patch_size: Annotated[int, Range(low=1)] = 16,
        reference: Annotated[float, Range(above=0)] = 16.0,
        base: Annotated[float, Range(above=0)] = 10000.0,
    ) -> None:
        super().__init__()
        if width % 4:
            raise BadInput(f"sines and cosines of rows and columns need a width divisible by 4, got {width}")
        self.patch_size, self.reference = patch_size, reference
        self.side = SinusoidalPositions(width // 2, base=base)

    def coordinates(
        self, grid: tuple[int, int], metres: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B Y"], Float[Tensor, "B X"]]:
        """Return the centres of rows and columns in units of `reference` metres."""
        if not bool(((metres > 0) & metres.isfinite()).all()):
            raise BadInput("the ground sample distance must be a finite number of metres above zero")
        size = metres[:, None] * self.patch_size / self.reference
        rows, columns = ((torch.arange(n, device=metres.device) + 0.5) * size for n in grid)
        return rows, columns

    def forward(self, grid: tuple[int, int], metres: Float[Tensor, " B"]) -> Float[Tensor, "B N C"]:
        """Return the vectors of the patches, row by row; `metres` is the size of a pixel of each picture."""
        y, x = (self.side.vectors(each, metres.dtype) for each in self.coordinates(grid, metres))
        y, x = y[:, :, None].expand(-1, -1, grid[1], -1), x[:, None].expand(-1, grid[0], -1, -1)
        return torch.cat([y, x], -1).flatten(1, 2)
