"""Letterbox: fit an image into a canvas without distortion, and map what was found there back to the image's pixels.

    image  rows x columns  ->  resized to fit, at the top left of the canvas; the rest of the canvas is padding

Both sides are rounded to whole pixels, so each has a factor of its own; boxes are mapped by these factors, and the way
back is their exact inverse. Maps (masks, logits, depth) may come at any resolution of the canvas, such as a quarter:
the centre of every pixel of the image is looked up in them, and the padding is never mixed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Letterbox:
    """Place of an image in a canvas.

    Args:
        image: rows and columns of the image.
        canvas: rows and columns of the canvas.
    """

    image: tuple[int, int]
    canvas: tuple[int, int]

    def __post_init__(self) -> None:
        if min(*self.image, *self.canvas) < 1:
            sizes = f"{self.image[0]} x {self.image[1]} into {self.canvas[0]} x {self.canvas[1]}"
            raise BadInput(f"Letterbox needs at least one row and one column, got {sizes}.")

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the resized image."""
        factor = min(c / i for c, i in zip(self.canvas, self.image, strict=True))
        rows, columns = (min(c, max(1, round(i * factor))) for c, i in zip(self.canvas, self.image, strict=True))
        return rows, columns

    @property
    def factors(self) -> tuple[float, float]:
        """Canvas pixels per image pixel, down and across."""
        return self.size[0] / self.image[0], self.size[1] / self.image[1]

    def view(self, image: Image, fill: tuple[int, int, int] = (0, 0, 0)) -> Image:
        """Return the canvas with the image on it."""
        from PIL import Image

        if (image.height, image.width) != self.image:
            raise BadInput(
                f"Image has {image.height} x {image.width} pixels; this letterbox is for {self.image[0]} x "
                f"{self.image[1]}."
            )
        canvas = Image.new("RGB", self.canvas[::-1], fill)
        canvas.paste(image.resize(self.size[::-1], Image.Resampling.BILINEAR))
        return canvas

    def map_to_image(self, values: Float[Tensor, "... y x"]) -> Float[Tensor, "... Y X"]:
        """Sample a map of the canvas, at any resolution, at the pixels of the image: bilinearly between centres."""
        axes = []
        for cells, steps, share in zip(self._centres(values), values.shape[-2:], self._shares(), strict=True):
            last = max(share * steps - 0.5, 0.5)  # beyond the centre of the last cell lies padding
            axes.append((cells.clamp(max=last) * (2 / steps) - 1).to(values.dtype))
        places = torch.stack(torch.meshgrid(*axes, indexing="ij")[::-1], -1)[None]  # x, then y, from -1 to 1
        flat = values.reshape(1, -1, *values.shape[-2:])
        found = F.grid_sample(flat, places, mode="bilinear", padding_mode="border", align_corners=False)
        return found.reshape(*values.shape[:-2], *self.image)

    def _shares(self) -> tuple[float, float]:
        """Return the shares of the canvas that the image covers, down and across."""
        return self.size[0] / self.canvas[0], self.size[1] / self.canvas[1]

    def _centres(self, values: Tensor) -> list[Tensor]:
        """Return where the centres of the image's rows and columns lie in a map of the canvas, in its cells."""
        return [
            (torch.arange(image, device=values.device, dtype=torch.float64) + 0.5) * (share * steps / image)
            for image, share, steps in zip(self.image, self._shares(), values.shape[-2:], strict=True)
        ]
