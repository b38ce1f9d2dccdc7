"""Image generation: images drawn intensity by intensity, from nothing or from a small image (super-resolution).

    objective    -log p(image): cross-entropy of every intensity given those before it, summed
    metric       bits per dimension, -log2 p(image) / (Y X C); loss, the same in nats
    decoding     sampling with a temperature; 0 takes the likeliest intensity
    predict      `ImageGenerator`: seeds in, images out; `SuperResolution`: small images in, large ones out

With `factor` the model is given the image reduced by that factor, the means of squares of pixels. With fewer `levels`
than 256 intensities are rounded down to levels, and bits per dimension are those of the levels. A model with a palette
(ImageGPT) is given the nearest colours instead: the palette is fitted to the training images, and bits are those of the
images of these colours, over all their channels.

Parmar et al.: Image Transformer. ICML 2018. arXiv:1802.05751 (super-resolution with temperatures of 0.8 to 1)
Chen et al.: Generative Pretraining from Pixels. ICML 2020 (colours)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import nn

from regard.core.config import field
from regard.core.decodable import Decodable
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor, pair
from regard.core.validation import validate
from regard.metrics.base import Metric, loss_metric
from regard.modalities.decode_image import resize_center_crop
from regard.modalities.generated_image import GeneratedImage
from regard.modalities.image import Image
from regard.modalities.number import Number
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:  # a predictor starts without the modules of training
    from regard.data.batching import BatchStream
    from regard.data.images.image_dataset import ImageDataset
    from regard.data.images.image_shards import ImageBatch, ImageShards

EVAL_IMAGES = 16  # of which the logits are in memory at a time: 3 million numbers for each of 32 x 32 x 3
SAMPLED_IMAGES = 64  # drawn at a time
PALETTE_PIXELS = 100_000  # of the training images, to which a palette is fitted


@dataclass(frozen=True)
class Config:
    """Settings of the task."""

    levels: int = field(256, low=2, high=256)  # intensities of a channel
    factor: int | None = field(None, low=2)  # of super-resolution, per side; None: images from nothing
    classes: bool = False  # give the model the label of every image, and draw images of a class

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> ImageGeneration:
        """Return the task on these data: an ImageDataset or ImageShards."""
        return ImageGeneration(self, data, seed)


class ImageGeneration(SplitTask[Any]):
    """Train and evaluate a model of images."""

    metrics = (
        Metric("bits_per_dim", "bits per dimension", higher_is_better=False, digits=4),
        loss_metric("nats per dimension"),
    )
    split_size = "images"
    unit = "dimensions"
    name = "image_generation"
    ragged = False  # all batches have one shape

    def __init__(self, config: Config, data: ImageDataset | ImageShards, seed: int = 0) -> None:
        super().__init__(data, seed)
        validate(config)
        self.config, sides = config, pair(data.pixels)
        if config.factor is not None and (sides[0] % config.factor or sides[1] % config.factor):
            raise BadInput(
                f"task.factor={config.factor} does not divide the {sides[0]} x {sides[1]} pixels of an image"
            )
        if config.classes and config.factor is not None:
            raise BadInput("task.classes=true is for images from nothing; leave it out with task.factor")
        self.labels = data.labels() if config.classes else []
        self.dimensions = len(data.mean) * sides[0] * sides[1]  # of an image

    def fit(self, config: Any) -> Any:
        sides, factor = pair(self.data.pixels), self.config.factor
        small = None if factor is None else (sides[0] // factor, sides[1] // factor)
        channels = len(self.data.mean)
        if not hasattr(config, "condition_size"):  # a model with a palette, of a size of its own
            if factor is not None or self.config.classes:
                named = "task.factor" if factor is not None else "task.classes"
                raise BadInput(f"{named} needs a model such as image_transformer")
            return replace(config, image_size=sides, channels=channels)
        known = {"num_classes": len(self.labels)} if self.labels else {}
        return replace(
            config, image_size=sides, channels=channels, levels=self.config.levels, condition_size=small, **known
        )

    def initialize(self, model: nn.Module) -> None:
        """Fit the palette of a model that has one; levels of grey stay as they are."""
        if hasattr(model, "palette") and len(self.data.mean) > 1:
            pixels = self.dataset("train").pixels.movedim(1, -1).flatten(0, -2)  # N C
            rows = torch.randint(len(pixels), (PALETTE_PIXELS,), generator=torch.Generator().manual_seed(self.seed))
            cast(Any, model).palette.fit(pixels[rows].to(next(model.parameters()).device) / 255, self.seed)

    def count(self, batch: ImageBatch) -> int:
        return len(batch[0]) * self.dimensions

    def batches(self) -> BatchStream[Any]:
        stream = super().batches()
        stream.count = self.count  # the data count images
        return stream

    def loss(
        self, model: nn.Module, batch: ImageBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the negative log-likelihood summed over the images of the batch, in nats."""
        inputs = self.inputs(model, batch.pixels, batch.labels)
        logits, pass_state = call_with_state(model, *inputs)
        total = intensity_loss(logits, inputs[0])
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def inputs(self, model: Any, pixels: UInt8[Tensor, "B C Y X"], labels: Int[Tensor, " B"]) -> tuple[Any, ...]:
        """Return what the model is given: images, for super-resolution small ones, and the classes if it knows them."""
        if hasattr(model, "quantize"):
            return (model.quantize(pixels),)
        images, small = to_levels(pixels, self.config.levels), None
        if self.config.factor is not None:
            small = to_levels(reduce_images(pixels, self.config.factor), self.config.levels)
        given = (images, small, labels if self.config.classes else None)
        return given if self.config.classes else given[: 1 if small is None else 2]

    def describe(self) -> dict[str, Any]:
        if self.config.factor is not None:
            return {"name": "super_resolution"}
        return {"name": "image_generation"} | ({"labels": self.labels} if self.labels else {})

    def card(self) -> str:
        train, (y, x) = self.dataset("train"), pair(self.data.pixels)
        reduced = f", each from {y // self.config.factor} x {x // self.config.factor}" if self.config.factor else ""
        return f"{self.data.path}, {len(train):,} images of {y} x {x}{reduced}"

    def measure(self, model: nn.Module, batch: ImageBatch) -> dict[str, Tensor]:
        nats = torch.zeros((), dtype=torch.float64, device=batch.pixels.device)
        for pixels, labels in zip(batch.pixels.split(EVAL_IMAGES), batch.labels.split(EVAL_IMAGES), strict=True):
            inputs = self.inputs(model, pixels, labels)
            nats = nats + intensity_loss(model(*inputs), inputs[0]) / self.dimensions
        return {"loss": nats, "bits_per_dim": nats / math.log(2)}


def intensity_loss(logits: Float[Tensor, "B C Y X V"], images: Int[Tensor, "B C Y X"]) -> Float[Tensor, ""]:
    """Return the negative log-likelihood of images, summed, in nats."""
    return F.cross_entropy(logits.flatten(0, -2).float(), images.flatten().long(), reduction="sum")


def to_levels(pixels: UInt8[Tensor, "B C Y X"], levels: int) -> Int[Tensor, "B C Y X"]:
    """Return bytes as levels from 0 to levels - 1, each of as many bytes as the others."""
    return pixels.long() * levels // 256


def from_levels(images: Int[Tensor, "B C Y X"], levels: int) -> UInt8[Tensor, "B C Y X"]:
    """Return levels as bytes, the lowest black and the highest white."""
    return (images * 255 / (levels - 1)).round().to(torch.uint8)


def reduce_images(pixels: UInt8[Tensor, "B C Y X"], factor: int) -> UInt8[Tensor, "B C y x"]:
    """Return images reduced by a factor per side: means of squares of pixels, rounded."""
    return F.avg_pool2d(pixels.double(), factor).round().to(torch.uint8)


# -- the predictors ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SamplingOptions:
    """Options of sampling."""

    temperature: float = field(1.0, low=0, high=10, help="below 1: likelier intensities; 0: the likeliest")


@dataclass(frozen=True)
class GeneratorOptions(SamplingOptions):
    """Options of drawing from nothing."""

    label: str | None = field(None, help="class of the image, for models that know classes; None: by the seed, in turn")


@dataclass(frozen=True)
class SuperResolutionOptions(SamplingOptions):
    """Options of enlarging."""

    seed: int = field(0, low=0, help="the same seed draws the same image")


class ImageGenerator(Predictor):
    """Seeds in, images out: the same seed draws the same image.

    draw = regard.load("runs/mnist")
    draw(7)                              GeneratedImage
    draw(range(16), temperature=0.9)     a list of sixteen
    draw(7, label="8")                   of a class, if the model knows classes
    """

    inputs = {"seed": Number}  # noqa: RUF012
    outputs = GeneratedImage
    options = GeneratorOptions
    examples = ("0", "7")

    def __init__(self, model: nn.Module, labels: Sequence[str] = ()) -> None:
        if getattr(model.config, "condition_size", None) is not None:
            raise BadInput("This model enlarges small images; use SuperResolution.")
        self.model, self.many = model.eval(), int(getattr(model.config, "num_classes", 0))
        self.labels = [*labels] or [str(number) for number in range(self.many)]

    def predict(self, batch: list[Any], options: Any) -> list[GeneratedImage]:
        seeds = [read_seed(value) for value in batch]
        return draw_images(self.model, seeds, None, options.temperature, self._classes(seeds, options.label))

    def _classes(self, seeds: Sequence[int], label: str | None) -> list[int] | None:
        """Return the class of each image; None for a model that knows none."""
        if label is not None and label not in self.labels:
            known = f"it knows {', '.join(self.labels)}" if self.labels else "it was trained without classes"
            raise BadInput(f"This model draws no '{label}'; {known}.")
        if not self.many:
            return None
        return [seed % self.many if label is None else self.labels.index(label) for seed in seeds]

    def complete(
        self, image: Any, rows: int | None = None, seeds: Sequence[int] = (0,), temperature: float = 1.0
    ) -> list[GeneratedImage]:
        """Keep the upper `rows` of an image (default: half of them) and draw the others, once for each seed."""
        model, (height, width) = cast(Any, self.model), pair(cast(Any, self.model.config).image_size)
        kept = height // 2 if rows is None else rows
        if not 0 <= kept < height:
            raise BadInput(f"rows must be from 0 to {height - 1}, got {rows}")
        if getattr(model, "_order", None) is not None:
            raise BadInput("this model draws images block by block, so it cannot continue from the upper rows")
        picture = Image.read(image)
        picture = picture.convert("L" if model.config.channels == 1 else "RGB")
        if picture.size != (width, height):
            picture = resize_center_crop(picture, (height, width), 1.0, "bicubic")
        pixels = torch.from_numpy(np.array(picture))
        pixels = pixels[None] if model.config.channels == 1 else pixels.permute(2, 0, 1)
        images = pixels[None].to(next(self.model.parameters()).device)
        colors = model.quantize(images) if hasattr(model, "quantize") else to_levels(images, model.config.levels)
        tokens = model.tokens(colors)[:, : kept * model.length // height]
        return draw_images(self.model, [read_seed(seed) for seed in seeds], None, temperature, begun=tokens)


class SuperResolution(Predictor):
    """Small images in, large ones out.

    enlarge = regard.load("runs/superres")
    enlarge("small.png", temperature=0.8)     GeneratedImage
    enlarge.small_size                        rows and columns of what it takes
    """

    inputs = {"image": Image}  # noqa: RUF012
    outputs = GeneratedImage
    options = SuperResolutionOptions

    def __init__(self, model: nn.Module) -> None:
        if getattr(model.config, "condition_size", None) is None:
            raise BadInput("This model takes no small image; use ImageGenerator.")
        self.model = model.eval()
        self.small_size = pair(model.config.condition_size)  # type: ignore[union-attr, arg-type]

    def predict(self, batch: list[Any], options: Any) -> list[GeneratedImage]:
        small = [self._levels(image, number) for number, image in enumerate(batch, 1)]
        return draw_images(
            self.model, [options.seed] * len(batch), torch.stack(small) if small else None, options.temperature
        )

    def _levels(self, image: Any, number: int) -> Int[Tensor, "C y x"]:
        (rows, columns), config = self.small_size, cast(Any, self.model.config)
        if image.size != (columns, rows):
            got = f"{image.size[0]} x {image.size[1]}"
            raise BadInput(f"image {number}: expected {columns} x {rows} pixels, got {got}; resize it first.")
        pixels = torch.from_numpy(np.array(image.convert("L") if config.channels == 1 else image))
        pixels = pixels[None] if config.channels == 1 else pixels.permute(2, 0, 1)
        return to_levels(pixels[None], config.levels)[0]


def draw_images(
    model: nn.Module,
    seeds: Sequence[int],
    small: Int[Tensor, "B C y x"] | None,
    temperature: float,
    labels: Sequence[int] | None = None,
    begun: Int[Tensor, "1 N"] | None = None,
) -> list[GeneratedImage]:
    """Draw an image of each seed (and of each small image, or class); the others of the batch do not change it.

    `begun` has the first tokens of all of them.
    """
    from regard.decoding.beam_search import greedy_search, sample

    decodable, drawn = cast(Any, model), list[GeneratedImage]()
    device, length = next(model.parameters()).device, decodable.length
    first = torch.zeros(1, 0, dtype=torch.long, device=device) if begun is None else begun
    for at in range(0, len(seeds), SAMPLED_IMAGES):
        some = list(seeds[at : at + SAMPLED_IMAGES])
        inputs: list[Any] = [torch.cat([decodable.begin(len(some), device), first.expand(len(some), -1)], 1)]
        left = length - first.shape[1]
        if labels is not None:
            inputs += [None, torch.tensor(labels[at : at + SAMPLED_IMAGES], device=device)]
        elif small is not None:
            inputs += [small[at : at + SAMPLED_IMAGES].to(device)]
        if temperature:
            found = [
                best
                for (best,) in sample(
                    cast(Decodable, model), *inputs, max_length=left, temperature=temperature, seed=some
                )
            ]
        else:
            found = greedy_search(cast(Decodable, model), *inputs, max_length=left)
        tokens = torch.tensor([each.tokens for each in found], device=device)
        images = decodable.images(torch.cat([first.expand(len(some), -1), tokens], 1))
        colored = decodable.colored(images) if hasattr(model, "colored") else from_levels(images, _levels(model))
        pixels = colored.permute(0, 2, 3, 1).cpu().numpy()
        drawn += [GeneratedImage(each[..., 0] if each.shape[2] == 1 else each) for each in pixels]
    return drawn


def _levels(model: nn.Module) -> int:
    levels: int = cast(Any, model).config.levels
    return levels


def read_seed(value: float) -> int:
    """Return a number as a seed."""
    if value != int(value) or not 0 <= value < 2**53:
        raise BadInput(f"A seed must be a whole number from 0 to 2^53 - 1, got {value:g}.")
    return int(value)
