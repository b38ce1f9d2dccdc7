"""GeneratedImage: a picture that a model made, as bytes of its pixels."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from regard.core.errors import BadInput
from regard.modalities.base import INTEGER, STRING, Output, object_schema

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


@dataclass(frozen=True, eq=False)
class GeneratedImage(Output):
    """Pixels from 0 to 255, rows by columns (grey) or rows by columns by 3 (RGB)."""

    pixels: np.ndarray

    kind = "generated_image"

    def __post_init__(self) -> None:
        pixels = np.asarray(self.pixels)
        is_image = pixels.size and (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3))
        if not is_image or pixels.dtype != np.uint8:
            raise BadInput(f"Expected pixels uint8 of shape Y X or Y X 3, got {pixels.dtype} of shape {pixels.shape}.")
        object.__setattr__(self, "pixels", np.ascontiguousarray(pixels))

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    def to_pil(self) -> PILImage:
        """Return the picture as a PIL image, "L" or "RGB"."""
        from PIL import Image as PIL

        return PIL.fromarray(self.pixels)

    def to_png(self) -> bytes:
        """Return the bytes of a PNG file."""
        file = io.BytesIO()
        self.to_pil().save(file, "PNG")
        return file.getvalue()

    def __str__(self) -> str:
        colours = "grey" if self.pixels.ndim == 2 else "RGB"
        return f"{colours} image of {self.width} x {self.height} pixels, mean {self.pixels.mean():.1f} of 255"

    def to_json(self) -> dict[str, Any]:
        return {"height": self.height, "width": self.width, "png": base64.b64encode(self.to_png()).decode("ascii")}

    @classmethod
    def from_json(cls, values: Any) -> Self:
        from PIL import Image as PIL

        with PIL.open(io.BytesIO(base64.b64decode(values["png"]))) as picture:
            return cls(np.asarray(picture))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        png = {**STRING, "contentEncoding": "base64", "contentMediaType": "image/png"}
        return object_schema({"height": INTEGER, "width": INTEGER, "png": png})

    def difference(self, other: GeneratedImage) -> float:
        """Return the mean absolute difference of the pixels, 1 for black against white; 1 if the shapes differ."""
        if self.pixels.shape != other.pixels.shape:
            return 1.0
        return float(np.abs(self.pixels.astype(np.float64) - other.pixels).mean() / 255)
