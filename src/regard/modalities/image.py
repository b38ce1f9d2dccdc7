"""Image: a picture handed in, upright and in RGB, and `Preprocess`, the way from it to a model's numbers.

`Preprocess` is one value, saved with the model and shared by training, prediction, conversion of other libraries'
folders and the explorer: size, crop and its mode, resampling, channels, mean and standard deviation.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.modalities.base import NO_LIMITS, STRING, Input, Limits, Source, is_path
from regard.modalities.decode_image import (
    center_crop_layout,
    check_image,
    list_image_files,
    open_image,
    resize_center_crop,
)

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

CROP_MODES = ("center", "squash", "border", "corner", "edges", "ratio")
CROP_ROUNDINGS = ("even", "down")
MAX_RATIO = 16  # of the pixels that a model reads with crop_mode "ratio" to those of its own size
CHANNELS = (1, 3, 4)  # of an array or a tensor: grey, RGB, RGB with alpha


class Image(Input):
    """A picture: a path, the bytes of a file, a PIL image, an array (Y X or Y X C, uint8) or a tensor (C Y X)."""

    kind = "image"
    units = "pixels"
    media_types = ("image/",)

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> PILImage:
        """Return the picture, upright and in RGB."""
        from PIL import Image as PIL

        if not cls.is_single(source):
            raise BadInput(
                f"Expected an image (a path, the bytes of a file, a PIL image, an array or a tensor), "
                f"got {type(source).__name__}."
            )
        if isinstance(source, bytes):
            check_image(source, limits.pixels)
        if not isinstance(source, (np.ndarray, Tensor)):
            return open_image(source)
        pixels = _to_uint8(source)
        return open_image(PIL.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels))

    @classmethod
    def is_single(cls, given: Any) -> bool:
        from PIL import Image as PIL

        return isinstance(given, (str, Path, bytes, PIL.Image, np.ndarray, Tensor))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        for word in arguments:
            if is_path(word) and Path(word).is_dir():
                files = list_image_files(Path(word))
                yield from (Source(str(file), file) for file in files)
                if not files:
                    yield Source(word, None, f"there are no image files in {word}")
            else:
                yield Source(word, Path(word))

    @classmethod
    def from_json(cls, value: Any, limits: Limits = NO_LIMITS) -> PILImage:
        """Return the picture of a base64 string, of the bytes of an upload, or one that is decoded already."""
        from PIL import Image as PIL

        return cls.read(value if isinstance(value, (bytes, PIL.Image)) else decode_base64(value), limits)

    @classmethod
    def size(cls, value: PILImage) -> float:
        return value.width * value.height

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        return {**STRING, "contentEncoding": "base64", "description": "the bytes of an image file"}


@dataclass(frozen=True)
class Preprocess:
    """How a model is shown an image.

    Args:
        size: rows and columns of what the model reads.
        channels: 1 (grey) or 3 (RGB).
        mean, std: subtracted and divided by, per channel, of values from 0 to 1.
        crop: the image is resized to size / crop, then the middle is cut out.
        resample: bicubic, bilinear, nearest or lanczos.
        crop_mode: what is resized to size / crop, as in timm: "center" the shorter side, "squash" each side on its own,
            so that nothing is cut off at crop 1 but the image is distorted, "border" the longer side, with a border of
            the mean colour around the rest, "corner" the longer side, with that border at the right and the bottom.
            In two modes the model reads the whole image in a size of its own (`at`): "edges" resizes the shorter side
            to size[0], or as near to it as the longer side has at most size[1] (DETR); "ratio" resizes both sides by
            the factor, of rows or of columns, that changes the image less (DPT).
        crop_rounding: where the crop begins if the margin is odd: "even" rounds half to even (torchvision, timm),
            "down" rounds down (transformers).
        multiple: with "ratio", sides are rounded to multiples of it.
    """

    size: tuple[int, int]
    channels: int = 3
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    crop: float = 1.0
    resample: str = "bicubic"
    crop_mode: Literal["center", "squash", "border", "corner", "edges", "ratio"] = "center"
    crop_rounding: Literal["even", "down"] = "even"
    multiple: int = 1

    def __post_init__(self) -> None:
        size = (self.size, self.size) if isinstance(self.size, int) else tuple(self.size)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))
        if self.channels not in (1, 3):
            raise BadInput(f"channels must be 1 or 3 to read pictures, got {self.channels}; pass tensors instead.")
        if not len(self.mean) == len(self.std) == self.channels:
            raise BadInput(f"mean and std must have {self.channels} values, got {len(self.mean)} and {len(self.std)}.")
        if not 0 < self.crop <= 1 or min(self.std) <= 0 or min(self.size) < 1:
            wanted = "crop must be above 0 and at most 1, std and size positive"
            raise BadInput(f"{wanted}; got crop={self.crop}, std={[*self.std]}, size={[*self.size]}.")
        for name, known in (("crop_mode", CROP_MODES), ("crop_rounding", CROP_ROUNDINGS)):
            if getattr(self, name) not in known:
                raise BadInput(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
        if self.multiple < 1 or (self.multiple > 1 and self.crop_mode != "ratio"):
            raise BadInput(f"multiple must be 1, or more with crop_mode='ratio'; got {self.multiple}.")

    def at(self, image: Any) -> Preprocess:
        """Return how this image is shown, with a size that does not depend on the image."""
        if self.crop_mode not in ("edges", "ratio"):
            return self
        wide, high = Image.read(image).size
        size = _fit_edges((high, wide), self.size)
        if self.crop_mode == "ratio":
            size = _fit_ratio((high, wide), self.size, self.multiple)
            if size[0] * size[1] > MAX_RATIO * self.size[0] * self.size[1]:  # attention costs the square
                read = f"the model would read it as {size[0]} x {size[1]}"
                raise BadInput(f"An image of {high} x {wide} pixels is too long and thin, {read}; crop it first.")
        return replace(self, size=size, crop=1.0, crop_mode="squash", multiple=1)

    def view(self, image: Any) -> PILImage:
        """Return an image as the model sees it: resized, its middle cut out, in the model's colours."""
        how, fill = self.at(image), tuple(round(255 * mean) for mean in (self.mean * 3)[:3])
        middle = resize_center_crop(
            Image.read(image), how.size, how.crop, how.resample, how.crop_mode, fill, how.crop_rounding
        )
        return middle.convert("L") if self.channels == 1 else middle

    def region(self, image: Any) -> tuple[float, float, float, float]:
        """Return the part of an image that the model sees, in pixels of the image: left, top, right, bottom.

        With a border it reaches beyond the image.
        """
        (wide, high), how = Image.read(image).size, self.at(image)
        (width, height), (left, top) = center_crop_layout(
            (wide, high), how.size, how.crop, how.crop_mode, how.crop_rounding
        )
        right, down = wide / width, high / height
        end_x, end_y = (left + how.size[1]) * right, (top + how.size[0]) * down
        if how.crop_mode in ("center", "squash"):  # rounding
            end_x, end_y = min(end_x, wide), min(end_y, high)
        return left * right, top * down, end_x, end_y

    def content(self, image: Any) -> tuple[int, int]:
        """Return the rows and columns of what the model sees that are image, not border."""
        image_size, how = Image.read(image).size, self.at(image)
        (width, height), _ = center_crop_layout(image_size, how.size, how.crop, how.crop_mode, how.crop_rounding)
        return min(height, how.size[0]), min(width, how.size[1])

    def to_image(self, image: Any, box: Sequence[float]) -> tuple[float, float, float, float]:
        """Return a box of the model's view (left, top, right, bottom, from 0 to 1) in pixels of the image."""
        left, top, right, bottom = self.region(image)
        (a, b, c, d), wide, high = box, right - left, bottom - top
        return left + a * wide, top + b * high, left + c * wide, top + d * high

    def normalize(self, pixels: UInt8[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        """Return bytes of the model's size as the numbers that it reads."""
        return normalize(pixels, self.mean, self.std)

    def __call__(self, image: Any, like: Tensor | None = None) -> Float[Tensor, "1 C Y X"]:
        """Return an image as the numbers that the model reads, with the device and dtype of `like`."""
        pixels = torch.from_numpy(np.array(self.view(image)))
        pixels = pixels[None] if self.channels == 1 else pixels.permute(2, 0, 1)
        device, dtype = (None, torch.float32) if like is None else (like.device, like.dtype)
        return normalize(pixels[None].to(device), self.mean, self.std).to(dtype)

    def batch(self, images: Sequence[Any], like: Tensor | None = None) -> Float[Tensor, "B C Y X"]:
        """Return several images, which the model reads in one size, as one batch."""
        empty = torch.zeros(0, self.channels, *self.size).to(*(() if like is None else (like.device, like.dtype)))
        return torch.cat([self(image, like) for image in images]) if images else empty


def _fit_edges(image: tuple[int, int], edges: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of an image whose shorter side becomes edges[0], the longer at most edges[1]."""
    (short, long), (shortest, longest) = sorted(image), edges
    exact = longest * short / long if long / short * shortest > longest else shortest
    side = max(1, round(exact))
    if short == side:
        return image
    other = max(1, int(exact * long / short))
    return (side, other) if image[0] == short else (other, side)


def _fit_ratio(image: tuple[int, int], size: tuple[int, int], multiple: int) -> tuple[int, int]:
    """Return the rows and columns of an image resized by the factor, of rows or of columns, that is nearer to 1."""
    down, right = size[0] / image[0], size[1] / image[1]
    factor = right if abs(1 - right) < abs(1 - down) else down
    rows, columns = (max(1, round(factor * side / multiple)) * multiple for side in image)
    return rows, columns


def normalize(pixels: UInt8[Tensor, "B C Y X"], mean: Any, std: Any) -> Float[Tensor, "B C Y X"]:
    """Return bytes minus the mean, divided by the standard deviation, both given for values from 0 to 1."""
    channels = _channels.__wrapped__ if torch.compiler.is_exporting() else _channels  # tracers' tensors are not kept
    middle, spread = (channels(tuple(x), pixels.device, torch.get_default_dtype()) for x in (mean, std))
    return (pixels - middle) / spread


@lru_cache(maxsize=64)  # copied to the device once
def _channels(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Float[Tensor, "C 1 1"]:
    return 255 * torch.tensor(values, dtype=dtype, device=device)[:, None, None]


def decode_base64(value: Any) -> bytes:
    """Return the bytes of a base64 string of a request."""
    if not isinstance(value, str):
        raise BadInput(f"Expected the bytes of a file as a base64 string, got {type(value).__name__}.")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BadInput("The string is not valid base64; send the bytes of a file, encoded.") from None


def _to_uint8(image: np.ndarray | Tensor) -> np.ndarray:
    """Return the bytes of an array (Y X C or Y X) or a tensor (C Y X or Y X) as Y X or Y X C."""
    is_array = isinstance(image, np.ndarray)
    what, letters, at = ("Array", "Y X C", -1) if is_array else ("Tensor", "C Y X", 0)
    shape = tuple(image.shape)
    if len(shape) not in (2, 3) or min(shape) < 1 or (len(shape) == 3 and shape[at] not in CHANNELS):
        more = " Pass a batch as a list: [*batch]." if len(shape) == 4 else ""
        raise BadInput(
            f"{what} of shape {shape} is no image; expected {letters} with 1, 3 or 4 channels, or Y X.{more}"
        )
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8:
            raise BadInput(f"Array has dtype {image.dtype}; expected uint8, values from 0 to 255.")
        return np.ascontiguousarray(image)
    if image.layout != torch.strided:
        raise BadInput("Expected a dense tensor, got a sparse one; pass image.to_dense().")
    pixels = image.detach().cpu()
    if pixels.is_floating_point():
        if not bool(((pixels >= 0) & (pixels <= 1)).all()):
            raise BadInput("A floating-point image must have values from 0 to 1.")
        pixels = (pixels.float() * 255).round().to(torch.uint8)
    if pixels.dtype != torch.uint8:
        kind = str(pixels.dtype).removeprefix("torch.")
        raise BadInput(f"Tensor has dtype {kind}; expected uint8, or floating point from 0 to 1.")
    return np.ascontiguousarray((pixels if pixels.ndim == 2 else pixels.permute(1, 2, 0)).numpy())
