"""Shift each image by up to `padding` pixels: pad it and cut out a piece of its size.

All (2 p + 1)² crops of a padded image are views of it; one for each image is selected by index, so only the result is
copied.

He, Zhang, Ren, Sun: Deep Residual Learning. CVPR 2016. arXiv:1512.03385, section 4.2
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Tensor
from regard.core.validation import Range
from regard.data.augment.sampling import random_integers


class RandomCrop:
    """Random crop of the padded image, of the image's size."""

    def __init__(
        self, padding: Annotated[int, Range(low=0)] = 4, padding_mode: Literal["constant", "reflect"] = "constant"
    ) -> None:
        if padding_mode not in ("constant", "reflect"):
            raise BadInput(f"random_crop(padding_mode={padding_mode!r}): padding_mode must be constant or reflect")
        if padding < 0:
            raise BadInput(f"random_crop(padding={padding}): at least 0 is needed")
        self.padding, self.padding_mode = padding, padding_mode

    def fits(self, y: int, x: int) -> None:
        """Raise if images could be shifted out of sight."""
        if self.padding >= min(y, x):
            raise BadInput(
                f"random_crop(padding={self.padding}): images of {y} x {x} could be shifted out of sight; "
                f"give at most {min(y, x) - 1}"
            )

    def __call__(self, pixels: UInt8[Tensor, "B C Y X"], generator: torch.Generator) -> UInt8[Tensor, "B C Y X"]:
        b, _, y, x = pixels.shape
        p = self.padding
        if self.padding_mode == "constant":
            wide = F.pad(pixels, (p, p, p, p))
        else:
            rows, columns = _reflect_indices(y, p, pixels.device), _reflect_indices(x, p, pixels.device)
            wide = pixels[:, :, rows[:, None], columns]
        pieces = wide.unfold(2, y, 1).unfold(3, x, 1)  # B C 2p+1 2p+1 Y X, a view
        top, left = (random_integers(b, 2 * p + 1, generator) for _ in range(2))
        return pieces[torch.arange(b, device=pixels.device), :, top, left]


def _reflect_indices(side: int, padding: int, device: torch.device) -> Tensor:
    """Return the source index of each pixel of a side with reflected borders of any width."""
    places = torch.arange(-padding, side + padding, device=device) % max(2 * side - 2, 1)
    return torch.minimum(places, 2 * side - 2 - places) if side > 1 else torch.zeros_like(places)
