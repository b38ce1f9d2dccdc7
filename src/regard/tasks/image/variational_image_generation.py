"""Variational image generation: black and white images from latent variables, and the bound on their likelihood.

    objective    the bound, -log p(image) <= -log p(image | z) + KL(q(z | image) || p(z)), with one draw of z
    metric       bound, in nats per image, and its two parts; evaluation draws z from a fixed seed
    decoding     z ~ N(0, 1), scaled by a temperature; the image is the probability of every pixel
    predict      `LatentImageGenerator`: seeds in, images out, with the canvas after every step

Pixels from 128 on are 1, the others 0; `data.images.binarized_images` has images whose pixels are drawn beforehand.

Gregor et al.: DRAW. ICML 2015. arXiv:1502.04623; Kingma, Welling: Auto-Encoding Variational Bayes. arXiv:1312.6114
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.shapes import Float, Tensor, pair
from regard.metrics.base import Metric, loss_metric
from regard.modalities.generated_image import GeneratedImage
from regard.modalities.number import Number
from regard.tasks.base import SplitTask
from regard.tasks.image.image_generation import SAMPLED_IMAGES, read_seed, to_levels
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:  # a predictor starts without the modules of training
    from regard.data.images.image_dataset import ImageDataset
    from regard.data.images.image_shards import ImageBatch, ImageShards

EVAL_SEED = 0  # of the noise of an evaluation


@dataclass(frozen=True)
class Config:
    """Settings of the task: there are none."""

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> VariationalImageGeneration:
        """Return the task on these data: an ImageDataset or ImageShards."""
        return VariationalImageGeneration(self, data, seed)


class VariationalImageGeneration(SplitTask[Any]):
    """Train and evaluate a model of images with latent variables: ``model(images, noise) -> logits, KL of every step``.

    The model's config has image_size and channels, which the data determine, and steps and latent, the shape of noise.
    """

    metrics = (
        Metric("bound", "bound", "nats per image", higher_is_better=False),
        Metric("reconstruction", "reconstruction", "nats per image", higher_is_better=False),
        Metric("kl", "KL", "nats per image", higher_is_better=None),
        loss_metric("nats per image"),
    )
    unit = split_size = "images"
    name = "variational_image_generation"
    ragged = False  # all batches have one shape

    def __init__(self, config: Config, data: ImageDataset | ImageShards, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        return replace(config, image_size=pair(self.data.pixels), channels=len(self.data.mean))

    def loss(
        self, model: nn.Module, batch: ImageBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the bound summed over the images of the batch, in nats."""
        config, device = cast(Any, model).config, batch.pixels.device
        noise = torch.randn(len(batch.pixels), config.steps, config.latent, generator=rng, device=device)
        parts = bound_parts(model, batch, noise)
        total = parts["reconstruction"] + parts["kl"]
        return total, {name: value.detach() for name, value in (parts | {"loss": total}).items()}

    def measure(self, model: nn.Module, batch: ImageBatch) -> dict[str, Tensor]:
        config = cast(Any, model).config
        noise = torch.randn(len(batch.pixels), config.steps, config.latent, generator=self._noise)
        parts = bound_parts(model, batch, noise.to(batch.pixels.device))
        total = parts["reconstruction"] + parts["kl"]
        return {"bound": total, **parts, "loss": total}

    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        self._noise = torch.Generator().manual_seed(EVAL_SEED)  # on the CPU: the same numbers for every device
        return super().evaluate(model, split, effort)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def card(self) -> str:
        train, (y, x) = self.dataset("train"), pair(self.data.pixels)
        return f"{self.data.path}, {len(train):,} images of {y} x {x}, black and white"


def bound_parts(model: nn.Module, batch: ImageBatch, noise: Float[Tensor, "B T Z"]) -> dict[str, Tensor]:
    """Return -log p(images | z) and the KL, each summed over the images, in nats."""
    images = to_levels(batch.pixels, 2).float()
    logits, kl = model(images, noise)
    nats = F.binary_cross_entropy_with_logits(logits.float(), images, reduction="sum")
    return {"reconstruction": nats, "kl": kl.float().sum()}


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LatentOptions:
    """Options of generation."""

    temperature: float = field(1.0, low=0, high=10, help="standard deviation of z; 0: the image of z = 0")


class LatentImageGenerator(Predictor):
    """Seeds in, images out: the same seed draws the same image. `frames` has the canvas after every step.

    draw = regard.load("runs/draw")
    draw(7).to_gif()                     the bytes of an animation
    draw(range(16), temperature=0.9)     a list of sixteen
    """

    inputs = {"seed": Number}  # noqa: RUF012
    outputs = GeneratedImage
    options = LatentOptions

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Any) -> list[GeneratedImage]:
        latents, drawn = [self.latent(read_seed(seed)) for seed in batch], list[GeneratedImage]()
        for at in range(0, len(latents), SAMPLED_IMAGES):
            check_cancelled()
            z = options.temperature * torch.stack(latents[at : at + SAMPLED_IMAGES])
            canvases = cast(Any, self.model).generate(z.to(next(self.model.parameters()).device))
            drawn += [to_generated(steps) for steps in canvases]
        return drawn

    def latent(self, seed: int) -> Float[Tensor, "T Z"]:
        """Return z ~ N(0, 1) of a seed, on the CPU: the same numbers for every device."""
        config = cast(Any, self.model).config
        return torch.randn(config.steps, config.latent, generator=torch.Generator().manual_seed(seed))


def to_generated(canvases: Float[Tensor, "T C Y X"]) -> GeneratedImage:
    """Return logits of pixels after every step as an image of their probabilities, black for 0 and white for 1."""
    pixels = (255 * canvases.float().sigmoid()).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    frames = pixels[..., 0] if pixels.shape[3] == 1 else pixels
    return GeneratedImage(frames[-1], frames)
