"""Semantic segmentation: the class of every pixel.

    objective    cross-entropy of every labelled pixel: its mean in each image, summed over the images
    metric       mIoU, pixel accuracy, mean accuracy, loss (nats per pixel)
    decoding     sliding windows with shared pixels, whose probabilities are averaged; the likeliest class of a pixel
    predict      `SemanticSegmenter`: images in, one mask per class out

A photo is resized so that a window of the model's own size fits into it, and windows that share at least a third of
their side cover it; a model that was made to see whole photos (a DPT of transformers) sees it at once.
Logarithms of probabilities go back to the photo's own pixels by bilinear interpolation.

Long, Shelhamer, Darrell: Fully Convolutional Networks. CVPR 2015. arXiv:1411.4038 (the metrics); Strudel, Garcia,
Laptev, Schmid: Segmenter. ICCV 2021. arXiv:2105.05633 (windows)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.trace import Trace
from regard.metrics.base import loss_metric
from regard.metrics.mean_iou import SEGMENTATION_METRICS, MeanIoU
from regard.modalities.image import Image, Preprocess
from regard.modalities.masks import Mask, Masks
from regard.tasks.base import call_with_state
from regard.tasks.image.scene_base import BATCH_PIXELS, SceneTask, SceneTaskConfig, check_outputs, on_canvas
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.data.images.scene_batch import SceneBatch

VOID = 255  # the class of a pixel that does not count
OVERLAP = 1 / 3  # of neighbouring windows, at least
MAX_WINDOWS = 4096  # of one photo


@dataclass(frozen=True)
class Config(SceneTaskConfig):
    """Settings of training."""

    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> SemanticSegmentation:
        """Return the task on these data: a dataset of scenes with class maps."""
        return SemanticSegmentation(self, data, seed)


class SemanticSegmentation(SceneTask):
    """Train and evaluate a model of class maps."""

    metrics = (*SEGMENTATION_METRICS, loss_metric("nats per pixel"))
    name = "semantic_segmentation"

    def loss(
        self, model: nn.Module, batch: SceneBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        batch = self.augmented(batch, rng)
        logits, pass_state = call_with_state(model, self.images(batch))
        total = pixel_loss(logits, self.targets(batch), self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def targets(self, batch: SceneBatch) -> Int[Tensor, "B Y X"]:
        """Return the class of every pixel of the canvas, `VOID` where it does not count."""
        if not batch.labels.numel() and len(batch.pixels):
            raise BadInput(f"{self.data.title()} has no class maps, which semantic segmentation is trained on.")
        return on_canvas(batch.labels, self.preprocess.size, VOID).long()

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return mIoU, accuracies and loss on a split, at the size in which the data come."""
        scores, total, images = MeanIoU(len(self.labels), VOID), 0.0, 0
        for batch in self.eval_batches(model, split):
            logits, targets = model(self.images(batch)).float(), self.targets(batch)
            total, images = total + float(pixel_loss(logits, targets)), images + len(targets)
            scores.update(logits.argmax(1), targets)
        return scores.compute() | {"loss": total / images, "images": images}


def pixel_loss(
    logits: Float[Tensor, "B K Y X"], targets: Int[Tensor, "B Y X"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the cross-entropy, its mean over the labelled pixels of each image, summed over the images."""
    losses = F.cross_entropy(
        logits.float(), targets, ignore_index=VOID, reduction="none", label_smoothing=label_smoothing
    )
    labelled = (targets != VOID).sum((1, 2)).clamp(min=1)
    return (losses.sum((1, 2)) / labelled).sum()


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of a segmenter."""

    min_score: float = field(0.0, low=0, high=1, help="leave out pixels whose class has a lower probability")
    scales: tuple[float, ...] = field((1.0,), above=0, high=8, help="sizes of the photo to average over")
    flip: bool = field(False, help="average with the mirrored photo")


class SemanticSegmenter(Predictor):
    """Images in, one mask per class that was found out.

        segment = SemanticSegmenter(model, ["road", "car"], Preprocess(256))
        segment("street.jpg")                      Masks: for each class its pixels and their mean probability
        segment("street.jpg", scales=(0.75, 1.0, 1.25), flip=True)

    The masks of an image do not overlap. Other images of a batch do not change an output.
    """

    inputs = {"image": Image}  # noqa: RUF012
    outputs = Masks
    options = Options

    def __init__(self, model: nn.Module, labels: Sequence[str], preprocess: Preprocess | Mapping[str, Any]) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(Preprocess, preprocess)
        check_outputs(model, labels, len(labels))
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess

    def predict(self, batch: list[Any], options: Options) -> list[Masks]:
        return [self._masks(image, options) for image in batch]

    def _masks(self, image: Any, options: Options) -> Masks:
        classes, scores = best_class(self.probabilities(image, options), (image.height, image.width))
        classes[scores < options.min_score] = VOID
        found = []
        for k in np.unique(classes[classes != VOID]).tolist():
            pixels = classes == k
            found.append(Mask(pixels, self.labels[k], min(1.0, float(scores[pixels].mean()))))
        return Masks(tuple(found), image.width, image.height)

    @torch.no_grad()
    def probabilities(self, image: Any, options: Options = Options()) -> Float[Tensor, "K y x"]:
        """Return the probability of every class, on the pixels of the photo resized to the model's windows."""
        total: Tensor | None = None
        for scale in options.scales:
            pixels, window = self.resized(image, scale), self.preprocess.at(image).size
            for flip in (False, True) if options.flip else (False,):
                found = self._slide(pixels.flip(-1), window).flip(-1) if flip else self._slide(pixels, window)
                if total is None:
                    total = found
                else:
                    total += F.interpolate(found[None], total.shape[1:], mode="bilinear", align_corners=False)[0]
        assert total is not None  # options have at least one scale
        return total / (len(options.scales) * (2 if options.flip else 1))

    def resized(self, image: Any, scale: float = 1.0) -> Float[Tensor, "C y x"]:
        """Return a photo normalised, in the size in which a window just fits into it, times `scale`.

        Where the model sees the whole photo at once (crop_mode "squash", "edges" or "ratio"), in the size of its view.
        """
        view = self.preprocess.at(image)
        rows, columns = view.size
        grow = scale * max(rows / image.height, columns / image.width)
        whole = scale * rows, scale * columns
        high, wide = whole if view.crop_mode == "squash" else (image.height * grow, image.width * grow)
        size = max(1, round(high)), max(1, round(wide))
        windows = len(window_starts(size[0], rows)) * len(window_starts(size[1], columns))
        if windows > MAX_WINDOWS:
            raise BadInput(
                f"A photo of {image.width} x {image.height} pixels needs {windows:,} windows of {columns} x {rows}; "
                f"the most are {MAX_WINDOWS:,}: crop it, or choose smaller scales."
            )
        resize = replace(view, size=size, crop=1.0, crop_mode="squash")
        return resize(image, next(self.model.parameters()))[0]

    def _slide(self, pixels: Float[Tensor, "C y x"], window: tuple[int, int]) -> Float[Tensor, "K y x"]:
        """Return the mean over the windows of the probabilities of every pixel."""
        (rows, columns), (high, wide) = window, pixels.shape[1:]
        padded = on_canvas(pixels, (max(high, rows), max(wide, columns)))
        corners = [(y, x) for y in window_starts(high, rows) for x in window_starts(wide, columns)]
        total = padded.new_zeros(len(self.labels), *padded.shape[1:], dtype=torch.float32)
        times = padded.new_zeros(padded.shape[1:], dtype=torch.float32)
        for some in _split(corners, max(1, BATCH_PIXELS // (16 * rows * columns))):
            check_cancelled()
            windows = torch.stack([padded[:, y : y + rows, x : x + columns] for y, x in some])
            for (y, x), found in zip(some, self.model(windows).float().softmax(1), strict=True):
                total[:, y : y + rows, x : x + columns] += found
                times[y : y + rows, x : x + columns] += 1
        return (total / times)[:, :high, :wide]

    def attention(self, image: Any) -> list[Trace]:
        """Return the attention maps of all layers for one image, of which the model sees the middle."""
        with torch.no_grad(), watch(self.model) as seen:
            self.model(self.preprocess(image, next(self.model.parameters())))
        return seen.traces()


def window_starts(side: int, window: int) -> list[int]:
    """Return where windows begin that cover a side evenly and share at least `OVERLAP` of their length."""
    if side <= window:
        return [0]
    stride = max(1, int(window * (1 - OVERLAP)))
    count = -(-(side - window) // stride) + 1
    return [round(n * (side - window) / (count - 1)) for n in range(count)]


def best_class(probabilities: Float[Tensor, "K y x"], size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the likeliest class of every pixel of a photo (Y X) and its probability.

    Logarithms are resized, which for a photo seen at once is to resize the logits. One class after another is resized,
    so that a photo of any size takes the memory of a few maps.
    """
    best, total = (torch.full(size, -torch.inf, device=probabilities.device) for _ in range(2))
    classes = torch.full(size, VOID, dtype=torch.uint8, device=probabilities.device)
    for k, each in enumerate(probabilities):
        logs = each.clamp(min=torch.finfo(each.dtype).tiny).log()
        found = F.interpolate(logs[None, None], size, mode="bilinear", align_corners=False)[0, 0]
        better = found > best
        best, classes = best.where(~better, found), classes.where(~better, torch.full_like(classes, k))
        total = total.logaddexp(found)
    return classes.cpu().numpy(), (best - total).exp().cpu().numpy()


def _split(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))
