"""Where the cells of a downsampled grid come from, made visible to `watch`.

A convolutional network halves its grid inside its stages, where nothing attends. Before a layer that does, the grid
passes through this module, which returns it as it is; `watch` hooks it, and maps can be drawn on the pixels. Outside
`watch` it costs nothing.
"""

from __future__ import annotations

from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.trace import Slots
from regard.tokens.patches import pixel_slots


class ObservedDownsampling(nn.Module):
    """The identity on a grid that is `stride` times as coarse as the grid (or image) before it."""

    exact_geometry = False  # receptive fields are larger and overlap

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, before: Float[Tensor, "B C Y X"], x: Float[Tensor, "B E Z W"]) -> Float[Tensor, "B E Z W"]:
        return x

    def slots(self, before: Float[Tensor, "B C Y X"]) -> Slots:
        """Return the cells of `before` under each cell."""
        return pixel_slots(before, (self.stride, self.stride))

    def extra_repr(self) -> str:
        return str(self.stride)
