"""Image classification: what is in a picture.

    objective    cross-entropy of the label, summed over the images; labels smoothed and mixed as the images are
    metric       accuracy, top5: the right label is among the five likeliest; loss (nats per image)
    decoding     none
    predict      `ImageClassifier`: images in, labels with their probabilities out (tasks.image.image_classifier)

On its way to the model a batch of bytes is augmented (data.augment), turned into numbers of mean 0 and spread 1, and
mixed in pairs; all of it on the batch's device, and all that is random in it drawn from the run's own generator.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929; Touvron et al.: DeiT. ICML 2021.
arXiv:2012.12877 (how it is trained on little data)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import nn

from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor, pair
from regard.core.spec import build_part
from regard.data.augment import AUGMENTATIONS
from regard.data.augment.batch_mixing import MixMethod, mix_batch
from regard.data.augment.cutmix import CutMix
from regard.data.augment.mixup import Mixup
from regard.data.augment.random_crop import RandomCrop
from regard.data.images.image_dataset import ImageDataset, ModelImageDataset
from regard.data.images.image_shards import ImageBatch, ImageShards
from regard.metrics.base import ACCURACY, fraction, loss_metric
from regard.modalities.image import Preprocess, normalize
from regard.tasks.base import SplitTask

EVAL_BATCH_SIZE = 500  # images that go through a model at a time where nothing is trained


@dataclass(frozen=True)
class Config:
    """How a classifier of images is trained."""

    label_smoothing: float = field(0.0, low=0, below=1)
    augment: tuple[str, ...] = ()  # specs in order (data.augment): "random_crop(padding=4)", "flip", "randaugment"
    mixup: float = field(0.0, low=0, high=100)  # alpha; 0: none
    cutmix: float = field(0.0, low=0, high=100)  # alpha; 0: none. With both a coin decides for each image
    mix_until: int = field(0, low=0)  # the update after which images are mixed no longer; 0: always

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> ImageClassification:
        """The task on these data: an ImageDataset, or Pictures."""
        return ImageClassification(self, data, seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> ModelImageDataset:
        """The images of a name to measure a saved model on, whose config.json this is."""
        return evaluation_images(corpus, saved, changes)


class ImageClassification(SplitTask[Any]):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    metrics = (ACCURACY, fraction("top5", "top-5 accuracy"), loss_metric("nats per image"))
    split_size = "images"
    unit = "images"
    name = "image_classification"
    ragged = False  # all batches have one shape
    capturable = True

    def __init__(self, config: Config, data: ImageDataset | ImageShards, seed: int = 0) -> None:
        super().__init__(data, seed)
        if not 0 <= config.label_smoothing < 1:
            raise BadInput(f"task.label_smoothing={config.label_smoothing}: a share, from 0 to less than 1")
        self.config, self.labels = config, data.labels()
        self.augments = [build_part(AUGMENTATIONS, spec, "augmentation") for spec in config.augment]
        for part in self.augments:
            if isinstance(part, RandomCrop):
                part.fits(*pair(data.pixels))
        self.blends: list[MixMethod] = [Mixup(config.mixup)] if config.mixup else []
        self.blends += [CutMix(config.cutmix)] if config.cutmix else []
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: classes, channels, and the size of an image."""
        return replace(config, num_classes=len(self.labels), channels=len(self.data.mean), image_size=self.data.pixels)

    def count(self, batch: ImageBatch) -> int:
        """The number of images."""
        return len(batch.labels)

    def loss(
        self, model: nn.Module, batch: ImageBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the images."""
        values, targets = self.prepared(batch, step, rng)
        total = self.objective(
            model(values).float(), targets, reduction="sum", label_smoothing=self.config.label_smoothing
        )
        return total, {"loss": total.detach()}

    def prepared(
        self, batch: ImageBatch, step: int | Tensor = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "B C Y X"], Float[Tensor, "B K"]]:
        """Return a batch as it is trained on: augmented, normalised, mixed; and the share of each label in each image.

        `rng` is a generator on the batch's device.
        """
        pixels, labels = batch.pixels, batch.labels
        generator = torch.Generator(pixels.device) if rng is None else rng
        for augment in self.augments:
            pixels = augment(pixels, generator)
        targets = (labels[:, None] == torch.arange(len(self.labels), device=pixels.device)).float()
        mixes = step < self.config.mix_until if self.config.mix_until else True
        return mix_batch(self.normalised(pixels), targets, self.blends, generator, mixes)

    def normalised(self, pixels: UInt8[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        """Bytes as numbers of about mean 0 and spread 1 a channel."""
        return normalize(pixels, self.data.mean, self.data.std)

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data = self.data
        shown = Preprocess(pair(data.pixels), len(data.mean), tuple(data.mean), tuple(data.std))
        return {"name": "image_classification", "labels": self.labels, "preprocess": to_dict(shown)}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, side = self.dataset("train"), self.data.pixels
        skipped = f" ({len(train.skipped):,} left out)" if train.skipped else ""
        return f"{self.data.path}, {len(train):,} images of {side} x {side}{skipped}, {len(self.labels)} labels"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per image), accuracy, top5, images."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        for some in part.eval_batches(EVAL_BATCH_SIZE):
            batch = some.to(device)
            logits = model(self.normalised(batch.pixels)).float()
            nll = F.cross_entropy(logits, batch.labels, reduction="sum")
            right = logits.topk(min(5, logits.shape[-1]), -1).indices == batch.labels[:, None]
            sums += torch.stack([nll, right[:, 0].sum(), right.sum()]).double()
        loss, first, five = (sums / len(part)).tolist()
        return {"loss": loss, "accuracy": first, "top5": five, "images": len(part)}


def evaluation_images(corpus: str, saved: Mapping[str, Any], changes: Mapping[str, Any]) -> ModelImageDataset:
    """The images of a name as a saved model is shown them; they must have its labels and its channels."""
    task = saved["task"]
    if other := changes.keys() - {"limit"}:
        raise BadInput(f"a model of images is measured on images as they are; it has no {min(other)}")
    shown = from_dict(Preprocess, task["preprocess"])
    if (sides := shown.size)[0] != sides[1]:
        raise BadInput(f"this model reads images of {sides[0]} x {sides[1]} pixels; it is measured on square ones only")
    data = ImageDataset(corpus, image_size=sides[0], **changes)
    if sorted(data.labels()) != sorted(task["labels"]):
        numbers = all(label.isdigit() for label in task["labels"])
        hint = "; it knows no names: set `labels` of what regard.load gives, and regard.save it" if numbers else ""
        raise BadInput(
            f"{corpus} has the labels {preview_labels(data.labels())}; "
            f"this model knows {preview_labels(task['labels'])}{hint}"
        )
    if len(data.mean) != shown.channels:
        raise BadInput(f"{corpus} has {len(data.mean)} channels, this model reads {shown.channels}")
    how: dict[str, Any] = {f"model_{name}": getattr(shown, name) for name in ("mean", "std", "crop", "resample")}
    return ModelImageDataset(corpus, image_size=sides[0], **changes, class_names=tuple(task["labels"]), **how)


def preview_labels(labels: Sequence[str]) -> str:
    """The first few labels, and how many more there are."""
    more = f" and {len(labels) - 3:,} more" if len(labels) > 3 else ""
    return ", ".join(labels[:3]) + more
