"""Image classification: which class an image belongs to.

    objective    cross-entropy of the label, summed over the images; labels smoothed and mixed as the images are
    metric       accuracy, top5: the right label is among the five likeliest; loss (nats per image)
    decoding     none
    predict      `ImageClassifier`: images in, labels with their probabilities out

A batch of bytes is augmented (data.augment), normalised to mean 0 and standard deviation 1, and mixed in pairs, all on
its device, with random numbers from the run's own generator.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929; Touvron et al.: DeiT. ICML 2021.
arXiv:2012.12877 (training on little data)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor, pair
from regard.core.spec import build_part
from regard.core.trace import Trace
from regard.core.validation import validate
from regard.metrics.base import ACCURACY, fraction, loss_metric
from regard.modalities.classes import Classes
from regard.modalities.image import Image, Preprocess, normalize
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor, check_label_count, config_value

if TYPE_CHECKING:  # a classifier starts without the modules of training
    from regard.data.augment.batch_mixing import MixMethod
    from regard.data.images.image_dataset import ImageDataset, ModelImageDataset
    from regard.data.images.image_shards import ImageBatch, ImageShards

EVAL_BATCH_SIZE = 500  # images of a batch of `evaluate`
BATCH_PIXELS = 2**22  # pixels of a batch of the classifier


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    label_smoothing: float = field(0.0, low=0, below=1)
    augment: tuple[str, ...] = ()  # specs in order (data.augment): "random_crop(padding=4)", "flip", "randaugment"
    mixup: float = field(0.0, low=0, high=100)  # alpha; 0: none
    cutmix: float = field(0.0, low=0, high=100)  # alpha; 0: none. With both, each image gets one at random
    mix_until: int = field(0, low=0)  # updates with mixing; 0: all

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> ImageClassification:
        """Return the task on these data: an ImageDataset or ImageShards."""
        return ImageClassification(self, data, seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> ModelImageDataset:
        """Return the images of a name to evaluate a saved model on, given its config.json."""
        return evaluation_images(corpus, saved, changes)


class ImageClassification(SplitTask[Any]):
    """Train and evaluate an image classifier."""

    metrics = (ACCURACY, fraction("top5", "top-5 accuracy"), loss_metric("nats per image"))
    split_size = "images"
    unit = "images"
    name = "image_classification"
    ragged = False  # all batches have one shape

    def __init__(self, config: Config, data: ImageDataset | ImageShards, seed: int = 0) -> None:
        super().__init__(data, seed)
        from regard.data.augment import AUGMENTATIONS
        from regard.data.augment.cutmix import CutMix
        from regard.data.augment.mixup import Mixup
        from regard.data.augment.random_crop import RandomCrop

        validate(config)
        self.config, self.labels = config, data.labels()
        self.augments = [build_part(AUGMENTATIONS, spec, "augmentation") for spec in config.augment]
        for part in self.augments:
            if isinstance(part, RandomCrop):
                part.fits(*pair(data.pixels))
        self.mixing: list[MixMethod] = [Mixup(config.mixup)] if config.mixup else []
        self.mixing += [CutMix(config.cutmix)] if config.cutmix else []
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def fit(self, config: Any) -> Any:
        sizes = {"num_classes": len(self.labels), "channels": len(self.data.mean), "image_size": self.data.pixels}
        if hasattr(config, "mean"):  # a model that looks for the colours in what it reads
            sizes |= {"mean": tuple(self.data.mean), "std": tuple(self.data.std)}
        return replace(config, **sizes)

    def count(self, batch: ImageBatch) -> int:
        return len(batch.labels)

    def loss(
        self, model: nn.Module, batch: ImageBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        values, targets = self.prepared(batch, step, rng)
        logits, pass_state = call_with_state(model, values)
        smoothing = self.config.label_smoothing
        total = self.objective(logits.float(), targets, reduction="sum", label_smoothing=smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def prepared(
        self, batch: ImageBatch, step: int | Tensor = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "B C Y X"], Float[Tensor, "B K"]]:
        """Return a batch augmented, normalised and mixed, and the share of each label in each image.

        `rng` is a generator on the batch's device.
        """
        from regard.data.augment.batch_mixing import mix_batch

        pixels, labels = batch.pixels, batch.labels
        generator = torch.Generator(pixels.device) if rng is None else rng
        for augment in self.augments:
            pixels = augment(pixels, generator)
        targets = (labels[:, None] == torch.arange(len(self.labels), device=pixels.device)).float()
        mixes = step < self.config.mix_until if self.config.mix_until else True
        return mix_batch(self.normalised(pixels), targets, self.mixing, generator, mixes)

    def normalised(self, pixels: UInt8[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        """Return bytes as numbers with about mean 0 and standard deviation 1 in each channel."""
        return normalize(pixels, self.data.mean, self.data.std)

    def logits(self, model: nn.Module, values: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B K"]:
        """Return the logits in evaluation."""
        found: Tensor = model(values)
        return found

    def describe(self) -> dict[str, Any]:
        data = self.data  # shards know no other preprocessing than their mean and deviation
        usual = Preprocess(pair(data.pixels), len(data.mean), tuple(data.mean), tuple(data.std))
        shown = getattr(data, "shown", usual)
        return {"name": "image_classification", "labels": self.labels, "preprocess": to_dict(shown)}

    def card(self) -> str:
        train, side = self.dataset("train"), self.data.pixels
        skipped = f" ({len(train.skipped):,} left out)" if train.skipped else ""
        return f"{self.data.path}, {len(train):,} images of {side} x {side}{skipped}, {len(self.labels)} labels"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per image), accuracy, images; top5 of many labels."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        for some in part.eval_batches(EVAL_BATCH_SIZE):
            batch = some.to(device)
            logits = self.logits(model, self.normalised(batch.pixels)).float()
            nll = F.cross_entropy(logits, batch.labels, reduction="sum")
            right = logits.topk(min(5, logits.shape[-1]), -1).indices == batch.labels[:, None]
            sums += torch.stack([nll, right[:, 0].sum(), right.sum()]).double()
        loss, first, five = (sums / len(part)).tolist()
        top5 = {"top5": five} if logits.shape[-1] > 5 else {}  # of fewer labels one is always among five
        return {"loss": loss, "accuracy": first, **top5, "images": len(part)}


def evaluation_images(corpus: str, saved: Mapping[str, Any], changes: Mapping[str, Any]) -> ModelImageDataset:
    """Return the images of a name, preprocessed for a saved model, which must know their labels and channels."""
    from regard.data.images.image_dataset import ImageDataset, ModelImageDataset

    task = saved["task"]
    if other := changes.keys() - {"limit"}:
        raise BadInput(f"image models are evaluated on images as they are and take no {min(other)}; leave it out")
    shown = from_dict(Preprocess, task["preprocess"])
    if (sides := shown.size)[0] != sides[1]:
        raise BadInput(f"only models of square images can be evaluated; this one reads {sides[0]} x {sides[1]} pixels")
    changes = {**changes, "grayscale": shown.channels == 1}
    data = ImageDataset(corpus, image_size=sides[0], **changes)
    if not {*data.labels()} <= {*task["labels"]}:
        numbers = all(label.isdigit() for label in task["labels"])
        hint = "; its labels are numbers: set `labels` of the loaded model and save it" if numbers else ""
        raise BadInput(
            f"{corpus} has the labels {preview_labels(data.labels())}; "
            f"this model has {preview_labels(task['labels'])}{hint}"
        )
    if len(data.mean) != shown.channels:
        raise BadInput(f"{corpus} has {len(data.mean)} channels, but this model needs {shown.channels}")
    return ModelImageDataset(corpus, **changes, preprocess=shown, class_names=tuple(task["labels"]))


def preview_labels(labels: Sequence[str]) -> str:
    """Return the first three labels and the number of the others."""
    more = f" and {len(labels) - 3:,} more" if len(labels) > 3 else ""
    return ", ".join(labels[:3]) + more


# -- the predictor -----------------------------------------------------------------------------------------------------


class ImageClassifier(Predictor):
    """Images in, labels with their probabilities out.

        classify = ImageClassifier(model, ["cat", "dog"], Preprocess(224))
        classify("cat.jpg")                        Classes("cat", 0.98, {"cat": 0.98, "dog": 0.02})
        classify(["cat.jpg", picture, pixels])     a list: paths, bytes of files, PIL images, arrays, tensors
        classify.preprocess.view("cat.jpg")        the image as the model sees it

    Other images of a batch do not change an output. An image that cannot be read is an error that names it.
    """

    inputs = {"image": Image}  # noqa: RUF012
    outputs = Classes

    def __init__(self, model: nn.Module, labels: Sequence[str], preprocess: Preprocess | Mapping[str, Any]) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(Preprocess, preprocess)
        check_label_count(labels, config_value(model, "num_classes"))
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found: list[Classes] = []
        height, width = self.preprocess.size
        size, weight = max(1, BATCH_PIXELS // (height * width)), next(self.model.parameters())
        for begin in range(0, len(batch), size):
            check_cancelled()
            with torch.no_grad():
                logits = self.logits(self.preprocess.batch(batch[begin : begin + size], weight), options)
            found += [Classes.rank(self.labels, row) for row in logits.float().softmax(-1).tolist()]
        return found

    def logits(self, values: Float[Tensor, "B C Y X"], options: Any) -> Float[Tensor, "B K"]:
        """Return the logits of a batch."""
        found: Tensor = self.model(values)
        return found

    def attention(self, image: Any) -> list[Trace]:
        """Return the attention maps of all layers for one image."""
        with torch.no_grad(), watch(self.model) as seen:
            self.model(self.preprocess(image, next(self.model.parameters())))
        return seen.traces()
