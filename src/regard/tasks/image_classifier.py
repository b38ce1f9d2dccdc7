"""Saying what is in pictures: images in, labels with their probabilities out.

    classify = ImageClassifier(model, labels=["cat", "dog"], image=224)
    classify(["cat.jpg", picture, content])        paths, PIL images, bytes of files: [Classified("cat", 0.98, {...})]
    classify.shown("cat.jpg")                      the picture as the model sees it: resized, its middle cut out

Every picture is looked at by itself, whoever else is in the batch. One that cannot be read is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from regard.attention.capture import watch
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.data.decoding import framed, opened
from regard.data.pictures import MEAN, STD
from regard.tasks.classifier import Classified, ranked
from regard.tasks.images import normalised

if TYPE_CHECKING:
    from PIL.Image import Image

PIXELS = 2**22  # that go through a model at a time


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
        classes = getattr(getattr(model, "config", None), "classes", None)
        if classes is not None and len(labels) != classes:
            raise BadInput(f"{len(labels):,} labels are not those of a model of {classes:,} classes; give one for each")
        if not 0 < crop <= 1 or min(std) <= 0 or min([image] if isinstance(image, int) else image) < 1:
            raise BadInput(f"crop={crop}, std={[*std]}, image={image}: a share up to 1, and numbers above 0")
        self.model, self.labels, self.channels = model.eval(), list(labels), channels
        self.image = image if isinstance(image, int) else [*image]
        self.mean, self.std, self.crop, self.resample = [*mean], [*std], crop, resample

    def __call__(self, images: Sequence[Any]) -> list[Classified]:
        """What is in every image, in their order."""
        if isinstance(images, (str, Path, bytes)) or not isinstance(images, Sequence):
            raise BadInput("give a list of images, not a single one")
        found: list[Classified] = []
        many = max(1, PIXELS // (self.size[0] * self.size[1]))
        for at in range(0, len(images), many):
            batch = torch.cat([self._named(each, n) for n, each in enumerate(images[at : at + many], at + 1)])
            with torch.no_grad():
                logits = self.model(batch)
            found += [ranked(self.labels, shares) for shares in torch.softmax(logits.float(), -1).tolist()]
        return found

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of what the model is shown."""
        return (self.image, self.image) if isinstance(self.image, int) else (self.image[0], self.image[1])

    def shown(self, image: Any) -> Image:
        """An image as the model sees it: its middle, in the model's size and colours."""
        middle = framed(opened(image), self.size, self.crop, self.resample)
        return middle.convert("L") if self.channels == 1 else middle

    def prepare(self, image: Any) -> Float[Tensor, "1 C Y X"]:
        """An image as the numbers that the model reads, on its device."""
        weight = next(self.model.parameters())
        pixels = torch.from_numpy(np.array(self.shown(image)))
        pixels = pixels[None] if self.channels == 1 else pixels.permute(2, 0, 1)
        return normalised(pixels[None].to(weight.device), self.mean, self.std).to(weight.dtype)

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
