"""GeneratedImage: a picture that a model made, as bytes of its pixels, and what it had drawn after every step."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from regard.core.errors import BadInput
from regard.modalities.base import INTEGER, STRING, Output, array_schema, object_schema

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


@dataclass(frozen=True, eq=False)
class GeneratedImage(Output):
    """Pixels from 0 to 255, rows by columns (grey) or rows by columns by 3 (RGB).

    A model that draws in steps adds `frames`, such a picture after every step; the last one is `pixels`.
    """

    pixels: np.ndarray
    frames: np.ndarray | None = None

    kind = "generated_image"

    def __post_init__(self) -> None:
        pixels = np.asarray(self.pixels)
        is_image = pixels.size and (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3))
        if not is_image or pixels.dtype != np.uint8:
            raise BadInput(f"Expected pixels uint8 of shape Y X or Y X 3, got {pixels.dtype} of shape {pixels.shape}.")
        object.__setattr__(self, "pixels", np.ascontiguousarray(pixels))
        if self.frames is not None and not (len(self.frames) and np.array_equal(self.frames[-1], pixels)):
            raise BadInput("The last of the frames must be the picture itself.")

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
        return _png(self.to_pil())

    def to_gif(self, seconds: float = 3.0, side: int = 224) -> bytes:
        """Return the bytes of a GIF file that shows all steps in this time, then the picture for a second.

        Small pictures are enlarged to about `side` pixels by repeating theirs.
        """
        from PIL import Image as PIL

        if self.frames is None:
            raise BadInput("This picture was not drawn in steps; save it as .png.")
        times = max(1, side // max(self.width, self.height))
        shown = [PIL.fromarray(frame.repeat(times, 0).repeat(times, 1)) for frame in self.frames]
        step, file = max(20, round(1000 * seconds / len(shown))), io.BytesIO()  # browsers show 20 ms at the fastest
        shown[0].save(
            file, "GIF", save_all=True, append_images=shown[1:], duration=[step] * (len(shown) - 1) + [1000], loop=0
        )
        return file.getvalue()

    def __str__(self) -> str:
        colours = "grey" if self.pixels.ndim == 2 else "RGB"
        steps = "" if self.frames is None else f" in {len(self.frames)} steps"
        return f"{colours} image of {self.width} x {self.height} pixels{steps}, mean {self.pixels.mean():.1f} of 255"

    def to_json(self) -> dict[str, Any]:
        from PIL import Image as PIL

        values: dict[str, Any] = {"height": self.height, "width": self.width, "png": _base64(self.to_png())}
        if self.frames is not None:
            values["frames"] = [_base64(_png(PIL.fromarray(frame))) for frame in self.frames]
        return values

    @classmethod
    def from_json(cls, values: Any) -> Self:
        frames = [_pixels(frame) for frame in values.get("frames", ())]
        return cls(_pixels(values["png"]), np.stack(frames) if frames else None)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        png = {**STRING, "contentEncoding": "base64", "contentMediaType": "image/png"}
        properties = {"height": INTEGER, "width": INTEGER, "png": png, "frames": array_schema(png)}
        return object_schema(properties, optional=["frames"])

    def difference(self, other: GeneratedImage) -> float:
        """Return the mean absolute difference of the pixels, 1 for black against white; 1 if the shapes differ."""
        if self.pixels.shape != other.pixels.shape:
            return 1.0
        return float(np.abs(self.pixels.astype(np.float64) - other.pixels).mean() / 255)


def _png(picture: PILImage) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _pixels(png: str) -> np.ndarray:
    from PIL import Image as PIL

    with PIL.open(io.BytesIO(base64.b64decode(png))) as picture:
        return np.asarray(picture)
