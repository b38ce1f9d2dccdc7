"""Panoptic segmentation: every pixel's class, and for countable things also which object it belongs to.

    objective    that of object detection, plus the focal and the dice loss of the masks of the last layer
    metric       PQ, SQ and RQ, of all classes, things and stuff; loss
    decoding     queries with a high score compete for every pixel: the highest mask logit wins; the queries of one
                 stuff class become one segment, and segments of a few pixels are dropped
    predict      `PanopticSegmenter`: images in, segments that do not overlap out

Stuff (sky, road) is trained like things: one object for all pixels of the class in an image, with a box around it.

Kirillov, He, Girshick, Rother, Dollár: Panoptic Segmentation. CVPR 2019. arXiv:1801.00868; Carion et al.: DETR. ECCV
2020. arXiv:2005.12872, section 4.4 and appendix A.6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.losses.detection import detection_losses, mask_losses
from regard.losses.set_matching import Matches
from regard.metrics.base import loss_metric
from regard.metrics.panoptic_quality import PANOPTIC_METRICS, PanopticQuality
from regard.modalities.image import Preprocess
from regard.modalities.masks import Mask, Masks
from regard.tasks.image import object_detection
from regard.tasks.image.object_detection import ObjectDetection, ObjectDetector, detection_targets, matched_objects
from regard.tasks.image.scene_base import letterbox, map_to_photo, on_canvas

if TYPE_CHECKING:
    from regard.data.images.scene_batch import SceneBatch

MIN_PIXELS = 5  # of a segment
MIN_SCORE = 0.85  # the paper's


@dataclass(frozen=True)
class Config(object_detection.Config):
    """Settings of training."""

    focal_weight: float = field(1.0, low=0)
    dice_weight: float = field(1.0, low=0)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> PanopticSegmentation:
        """Return the task on these data: a dataset of scenes with masks of things and of stuff."""
        return PanopticSegmentation(self, data, seed)


class PanopticSegmentation(ObjectDetection):
    """Train and evaluate a detector whose output has masks too."""

    metrics = (*PANOPTIC_METRICS, loss_metric("per image"))
    name = "panoptic_segmentation"

    def __init__(self, config: Config, data: Any, seed: int = 0) -> None:
        super().__init__(config, data, seed)
        self.things = list(data.things())

    def losses(self, output: Any, batch: SceneBatch, groups: int = 1) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        if output.masks is None:
            raise BadInput("The model has no masks, which panoptic segmentation is trained on; set model.masks=true.")
        targets = detection_targets(batch)
        matches, count = self.matches(output, targets, groups), groups * targets.total
        found = detection_losses(
            output.logits, output.boxes, targets, matches, self.config.no_object_weight, num_boxes=count
        )
        first = matches.query.shape[1] // groups  # pairs of the first group, whose queries have masks
        matches = Matches(*(each[-1:, :first] for each in matches))
        found |= mask_losses(output.masks[None], self.true_masks(batch), targets, matches)
        return self.weighted(found, len(batch.pixels))

    def weights(self) -> dict[str, float]:
        return super().weights() | {"focal": self.config.focal_weight, "dice": self.config.dice_weight}

    def true_masks(self, batch: SceneBatch) -> Bool[Tensor, "B M Y X"]:
        """Return the masks of the objects that are matched, on the canvas."""
        order, _ = matched_objects(batch)
        if order.shape[1] and not batch.masks.shape[-1]:
            raise BadInput(f"{self.data.title()} has no masks, which panoptic segmentation is trained on.")
        masks = batch.masks.gather(1, order[..., None, None].expand(-1, -1, *batch.masks.shape[2:]))
        return on_canvas(masks, self.preprocess.size)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"things": self.things}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return PQ, SQ, RQ and loss on a split, on the pixels of the size in which the data come."""
        stuff = {k for k, label in enumerate(self.labels) if label not in self.things}
        scores, total, images = PanopticQuality(stuff), 0.0, 0
        for batch in self.eval_batches(model, split):
            output = model(self.images(batch), batch.sizes)
            total, images = total + float(self.losses(output, batch)[0]), images + len(batch.pixels)
            for b, (rows, columns) in enumerate(batch.sizes.tolist()):
                resize = _to_canvas(self.preprocess.size, rows, columns)
                found = panoptic_segments(output.logits[-1, b], output.masks[b], resize, stuff)
                masks, count = batch.masks[b, :, :rows, :columns], int(batch.counts[b])
                numbers = torch.arange(1, len(masks) + 1, device=masks.device)[:, None, None]
                true = (masks * numbers).amax(0) if len(masks) else found.segments.new_zeros(rows, columns)
                there = set(true.unique().tolist()) - {0}  # a segment may have lost its pixels when it was resized
                classes = {n + 1: int(batch.classes[b, n]) for n in range(count) if n + 1 in there}
                crowd = [n + 1 for n in range(count) if bool(batch.crowd[b, n]) and n + 1 in there]
                scores.update(
                    found.segments.cpu().numpy(), dict(enumerate(found.classes, 1)), _array(true), classes, crowd
                )
        counted = {name: value for name, value in scores.compute().items() if math.isfinite(value)}  # kinds that occur
        return counted | {"loss": total / images, "images": images}


def _to_canvas(canvas: tuple[int, int], rows: int, columns: int) -> Callable[[Tensor], Tensor]:
    """Return what resizes a map (y x) to the canvas and cuts the image out of it."""
    return lambda one: F.interpolate(one[None, None], canvas, mode="bilinear", align_corners=False)[
        0, 0, :rows, :columns
    ]


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()


class Segments(NamedTuple):
    """Segments that do not overlap: the number of each pixel's segment, from 1, 0 for none; classes and scores."""

    segments: Int[Tensor, "Y X"]
    classes: list[int]
    scores: list[float]


def panoptic_segments(
    logits: Float[Tensor, "Q K"],
    masks: Float[Tensor, "Q y x"],
    resize: Callable[[Tensor], Tensor],
    stuff: Collection[int],
    min_score: float = MIN_SCORE,
) -> Segments:
    """Return the segments of one image from the class and mask logits of all queries.

    `resize` maps the mask logits of a query (y x) to the image (Y X); it is called for one query at a time, so that
    photos of any size take the memory of a few maps.
    """
    scores, classes = logits.float().softmax(-1).max(-1)
    kept = torch.nonzero((classes != logits.shape[-1] - 1) & (scores >= min_score)).flatten().tolist()
    numbers = resize(masks[0].float()).new_zeros((), dtype=torch.int64)
    while True:
        best: Tensor | None = None
        for number, query in enumerate(kept, 1):
            found = resize(masks[query].float())
            if best is None:
                best, numbers = found, torch.ones_like(found, dtype=torch.int64)
            else:
                better = found > best
                best, numbers = best.where(~better, found), numbers.where(~better, torch.full_like(numbers, number))
        if best is None:
            return Segments(torch.zeros_like(resize(masks[0].float()), dtype=torch.int64), [], [])
        merged = _merge_stuff([int(classes[query]) for query in kept], stuff)
        numbers = torch.tensor([0, *merged], device=numbers.device)[numbers]
        pixels = numbers.flatten().bincount(minlength=len(kept) + 1).tolist()
        small = [query for query, number in zip(kept, merged, strict=True) if pixels[number] < MIN_PIXELS]
        if not small:
            break
        kept = [query for query in kept if query not in small]
    first = dict(reversed([*zip(merged, kept, strict=True)]))  # the query of a segment
    ordered = sorted(first)
    renumbered = torch.zeros(len(kept) + 1, dtype=torch.int64, device=numbers.device)
    renumbered[ordered] = torch.arange(1, len(ordered) + 1, device=numbers.device)
    found_scores = [max(float(scores[q]) for q, m in zip(kept, merged, strict=True) if m == n) for n in ordered]
    return Segments(renumbered[numbers], [int(classes[first[n]]) for n in ordered], found_scores)


def _merge_stuff(classes: Sequence[int], stuff: Collection[int]) -> list[int]:
    """Return the number of each query's segment: its own place from 1, for stuff the first place of its class."""
    return [classes.index(k) + 1 if k in stuff else n for n, k in enumerate(classes, 1)]


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of a panoptic segmenter."""

    min_score: float = field(MIN_SCORE, low=0, high=1, help="leave out segments with a lower score")


class PanopticSegmenter(ObjectDetector):
    """Images in, segments out: one for every object of a thing, one for all pixels of a stuff class.

        segment = PanopticSegmenter(model, ["sky", "car"], Preprocess(512, crop_mode="corner"), things=["car"])
        segment("street.jpg")                      Masks, which do not overlap

    Other images of a batch do not change an output.
    """

    outputs = Masks
    options = Options

    def __init__(
        self,
        model: nn.Module,
        labels: Sequence[str],
        preprocess: Preprocess | Mapping[str, Any],
        things: Sequence[str],
    ) -> None:
        super().__init__(model, labels, preprocess)
        if unknown := set(things) - set(labels):
            raise BadInput(f"The things {sorted(unknown)} are not among the labels.")
        self.things = list(things)

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Any) -> list[Any]:
        stuff = {k for k, label in enumerate(self.labels) if label not in self.things}
        found = list[Masks]()
        for image in batch:  # one at a time: masks of all queries are large
            check_cancelled()
            output = self.model(*letterbox([image], self.preprocess, next(self.model.parameters())))
            resize = partial(map_to_photo, preprocess=self.preprocess, photo=image)
            segments = panoptic_segments(output.logits[-1, 0], output.masks[0], resize, stuff, options.min_score)
            pixels = _array(segments.segments)
            rows = enumerate(zip(segments.classes, segments.scores, strict=True), 1)
            masks = tuple(Mask(pixels == n, self.labels[k], min(1.0, score)) for n, (k, score) in rows)
            found.append(Masks(masks, image.width, image.height))
        return found
