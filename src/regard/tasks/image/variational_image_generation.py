"""Variational image generation: black and white images from latent variables, and the bound on their likelihood.

    objective    the variational bound, -log p(image) <= -log p(image | z) + KL(q(z | image) || p(z)), with one draw of z
    metric       bound, in nats per image, and its two parts; evaluation draws z from a fixed seed
    decoding     z ~ N(0, 1), scaled by a temperature; the image is the probability of every pixel
    predict      `LatentImageGenerator`: seeds in, images with all steps out
                 `ImageReconstructor`: images in, the same images as the model draws them out

Pixels from 128 on are 1, the others 0; `data.images.binarized_images` has images whose pixels are drawn beforehand.

Gregor et al.: DRAW. ICML 2015. arXiv:1502.04623; Kingma, Welling: Auto-Encoding Variational Bayes. arXiv:1312.6114
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor, pair
from regard.metrics.base import Metric, loss_metric
from regard.tasks.base import SplitTask
from regard.tasks.image.image_generation import to_levels

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
