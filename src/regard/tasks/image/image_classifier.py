"""Saying what is in pictures: images in, labels with their probabilities out.

    classify = ImageClassifier(model, labels=["cat", "dog"], image=224)
    classify(["cat.jpg", picture, content])        paths, PIL images, bytes of files: [ClassificationResult("cat", 0.98, {...})]
    classify([pixels])                             arrays Y X C or Y X of uint8; tensors C Y X of uint8, or from 0 to 1
    classify.shown("cat.jpg")                      the picture as the model sees it: resized, its middle cut out

A single picture will do for a list of one. Every picture is looked at by itself, whoever else is in the batch. One that
cannot be read is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, require_iterable
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.data.images.image_shards import MEAN, STD
from regard.modalities.image import open_image, resize_center_crop
from regard.tasks.image.image_classification import normalize
from regard.tasks.text.classifier import ClassificationResult, rank_labels

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH_PIXELS = 2**22  # that go through a model at a time
CHANNELS = (1, 3, 4)  # of an array or a tensor: grey, RGB, RGB and how opaque


class ImageClassifier:
    """A model that tells images apart, with its labels and the way it is shown them, to be called."""

    def __init__(
        self,
        model: nn.Module,
        labels: Sequence[str],
        image: int | Sequence[int],
        channels: int = 3,
        mean: Sequence[float] = MEAN,
        std: Sequence[float] = STD,
        crop: float = 1.0,
        resample: str = "bicubic",
    ) -> None:
        if channels not in (1, 3):
            raise BadInput(f"pictures have 1 or 3 channels; this model reads {channels}: call it with tensors")
        if not len(mean) == len(std) == channels:
            raise BadInput(f"{len(mean)} means and {len(std)} spreads are not those of {channels} channels")
        classes = getattr(getattr(model, "config", None), "num_classes", None)
        if classes is not None and len(labels) != classes:
            raise BadInput(f"{len(labels):,} labels are not those of a model of {classes:,} classes; give one for each")
        if not 0 < crop <= 1 or min(std) <= 0 or min([image] if isinstance(image, int) else image) < 1:
            raise BadInput(f"crop={crop}, std={[*std]}, image={image}: a share up to 1, and numbers above 0")
        self.model, self.labels, self.channels = model.eval(), list(labels), channels
        self.image = image if isinstance(image, int) else [*image]
        self.mean, self.std, self.crop, self.resample = [*mean], [*std], crop, resample

    def __call__(self, images: Any) -> list[ClassificationResult]:
        """What is in every image, in their order; of a single one, a list of one."""
        images = [images] if _is_single_image(images) else list(require_iterable(images, "images"))
        found: list[ClassificationResult] = []
        many = max(1, BATCH_PIXELS // (self.size[0] * self.size[1]))
        for at in range(0, len(images), many):
            batch = torch.cat([self._named(each, n) for n, each in enumerate(images[at : at + many], at + 1)])
            with torch.no_grad():
                logits = self.model(batch)
            found += [rank_labels(self.labels, shares) for shares in torch.softmax(logits.float(), -1).tolist()]
        return found

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of what the model is shown."""
        return (self.image, self.image) if isinstance(self.image, int) else (self.image[0], self.image[1])

    def shown(self, image: Any) -> Image:
        """An image as the model sees it: its middle, in the model's size and colours."""
        middle = resize_center_crop(_open_image(image), self.size, self.crop, self.resample)
        return middle.convert("L") if self.channels == 1 else middle

    def prepare(self, image: Any) -> Float[Tensor, "1 C Y X"]:
        """An image as the numbers that the model reads, on its device."""
        weight = next(self.model.parameters())
        pixels = torch.from_numpy(np.array(self.shown(image)))
        pixels = pixels[None] if self.channels == 1 else pixels.permute(2, 0, 1)
        return normalize(pixels[None].to(weight.device), self.mean, self.std).to(weight.dtype)

    def attention(self, image: Any) -> list[Trace]:
        """The maps of all layers for one image."""
        values = self.prepare(image)
        with torch.no_grad(), watch(self.model) as seen:
            self.model(values)
        return seen.traces()

    def _named(self, image: Any, number: int) -> Tensor:
        try:
            return self.prepare(image)
        except BadInput as error:
            name = image if isinstance(image, (str, Path)) else f"image {number}"
            raise BadInput(str(error) if str(name) in str(error) else f"{name}: {error}") from None


def _is_single_image(given: Any) -> bool:
    """Whether this is a picture and not several."""
    from PIL import Image

    return isinstance(given, (str, Path, bytes, Image.Image, np.ndarray, Tensor))


def _open_image(image: Any) -> Image:
    """An image upright and in RGB, wherever it stands: in a file, in an array or in a tensor."""
    from PIL import Image

    if not _is_single_image(image):
        places = "a path, the bytes of a file, a PIL image, an array or a tensor"
        raise BadInput(f"a {type(image).__name__} is no image; give {places}")
    if not isinstance(image, (np.ndarray, Tensor)):
        return open_image(image)
    pixels = _to_uint8_array(image)
    return open_image(Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels))


def _to_uint8_array(image: np.ndarray | Tensor) -> np.ndarray:
    """The bytes of an array Y X C or a tensor C Y X, of either without C too: Y X or Y X C."""
    array = isinstance(image, np.ndarray)
    what, letters, at = ("an array", "Y X C", -1) if array else ("a tensor", "C Y X", 0)
    shape = tuple(image.shape)
    if len(shape) not in (2, 3) or min(shape) < 1 or (len(shape) == 3 and shape[at] not in CHANNELS):
        more = "; of a batch give a list: [*batch]" if len(shape) == 4 else ""
        raise BadInput(f"{what} of shape {shape} is no image: wanted is {letters} of 1, 3 or 4 channels, or Y X{more}")
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8:
            raise BadInput(f"an array of {image.dtype} is no image: wanted is uint8, numbers from 0 to 255")
        return np.ascontiguousarray(image)
    pixels = image.detach().cpu()
    if pixels.is_floating_point():
        if not bool(((pixels >= 0) & (pixels <= 1)).all()):
            raise BadInput("an image of floating point holds numbers from 0 to 1; this tensor holds others")
        pixels = (pixels.float() * 255).round().to(torch.uint8)
    if pixels.dtype != torch.uint8:
        kind = str(pixels.dtype).removeprefix("torch.")
        raise BadInput(f"a tensor of {kind} is no image: wanted is uint8, or floating point from 0 to 1")
    return np.ascontiguousarray((pixels if pixels.ndim == 2 else pixels.permute(1, 2, 0)).numpy())
