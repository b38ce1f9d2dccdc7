"""Object detection as set prediction: a box, a class and a score for every object, without anchors or suppression.

    objective    DETR's: every object is matched with one query (losses.set_matching); cross-entropy of the classes,
                 L1 distance and generalised IoU of the boxes, summed over the decoder layers; the same for noised
                 objects where the model takes them (losses.denoising), and for each of its groups of queries
    metric       AP and AR by COCO's rule, loss
    decoding     the likeliest class of every query but "no object"
    predict      `ObjectDetector`: images in, boxes in their own pixels out

Losses are means over the objects of a batch, times its images. Crowd regions are not matched.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.core.trace import Trace
from regard.losses.denoising import denoising_losses, denoising_queries
from regard.losses.detection import detection_losses
from regard.losses.set_matching import Matches, MatchingWeights, Targets, assign, matching_cost
from regard.metrics.average_precision import DETECTION_METRICS, AveragePrecision
from regard.metrics.base import loss_metric
from regard.modalities.base import Output
from regard.modalities.box_geometry import centres_to_corners, corners_to_centres
from regard.modalities.boxes import Box, Boxes
from regard.modalities.image import Image, Preprocess
from regard.tasks.base import call_with_state
from regard.tasks.image.scene_base import SceneTask, SceneTaskConfig, batches, check_outputs, letterbox, whole_view
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.data.images.scene_batch import SceneBatch


@dataclass(frozen=True)
class Config(SceneTaskConfig):
    """Settings of training; the weights are DETR's."""

    class_weight: float = field(1.0, low=0)  # of the cross-entropy, in the loss and the matching
    l1_weight: float = field(5.0, low=0)
    giou_weight: float = field(2.0, low=0)
    no_object_weight: float = field(0.1, above=0)  # of the class "no object" in the cross-entropy
    noised_groups: int = field(5, low=1)  # noised copies of the objects, for a model with `denoising`

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> ObjectDetection:
        """Return the task on these data: a dataset of scenes with boxes."""
        return ObjectDetection(self, data, seed)


class ObjectDetection(SceneTask):
    """Train and evaluate a detector: ``model(images, sizes)`` returns the logits and boxes of every decoder layer."""

    metrics = (*DETECTION_METRICS, loss_metric("per image"))
    name = "object_detection"

    def loss(
        self, model: nn.Module, batch: SceneBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        batch = self.augmented(batch, rng)
        targets, config, copies = detection_targets(batch), getattr(model, "config", None), self.config.noised_groups
        groups, noised = getattr(config, "query_groups", 1), {}
        if getattr(config, "denoising", False):
            noised["denoising"] = denoising_queries(targets, self.num_outputs, copies, generator=rng)
        output, pass_state = call_with_state(model, self.images(batch), batch.sizes, **noised)
        own = output.logits.shape[2] - (copies * targets.classes.shape[1] if noised else 0)  # noised ones are behind
        split = output._replace(logits=output.logits[:, :, :own], boxes=output.boxes[:, :, :own])
        total, parts = self.losses(split, batch, groups)
        if noised:
            found = denoising_losses(output.logits[:, :, own:], output.boxes[:, :, own:], targets, copies)
            total = total + self.weighted(found, len(batch.pixels))[0]
            parts["loss"] = total.detach()
        return self.with_layer_losses(total, batch, pass_state), parts

    def losses(self, output: Any, batch: SceneBatch, groups: int = 1) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the weighted loss of all layers, and the parts of the last layer, each times the images."""
        targets = detection_targets(batch)
        matches = self.matches(output, targets, groups)
        count = groups * targets.total
        losses = detection_losses(
            output.logits, output.boxes, targets, matches, self.config.no_object_weight, num_boxes=count
        )
        return self.weighted(losses, len(batch.pixels))

    def matches(self, output: Any, targets: Targets, groups: int = 1) -> Matches:
        """Return which query belongs to which object, in every layer, for each group of queries by itself."""
        c = self.config
        weights = MatchingWeights(c.class_weight, c.l1_weight, c.giou_weight)
        return assign(matching_cost(output.logits, output.boxes, targets, weights), targets.counts, groups)

    def weighted(self, losses: Mapping[str, Tensor], images: int) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the sum of losses (each a vector over the layers) by weight, and the parts for the log."""
        weights = self.weights()
        total = images * torch.stack([weights[name] * each.sum() for name, each in losses.items()]).sum()
        parts = {f"{name}_loss": images * each[-1].detach() for name, each in losses.items()}
        return total, {"loss": total.detach()} | parts

    def weights(self) -> dict[str, float]:
        """Return the weight of every loss by name."""
        return {"classes": self.config.class_weight, "l1": self.config.l1_weight, "giou": self.config.giou_weight}

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return AP, AR and loss on a split, in pixels of the size in which the data come."""
        scores, total, images = AveragePrecision(), 0.0, 0
        for batch in self.eval_batches(model, split):
            output = model(self.images(batch), batch.sizes)
            total, images = total + float(self.losses(output, batch)[0]), images + len(batch.pixels)
            said = detections(output)
            boxes = said.boxes * image_sides(batch.sizes)[:, None]
            rows = zip(said.scores, said.classes, boxes, *_objects(batch), strict=True)
            for score, classes, box, *true in rows:
                scores.update(box, score, classes, *true)
        found = {name: value for name, value in scores.compute().items() if math.isfinite(value)}  # sizes that occur
        return found | {"loss": total / images, "images": images}


def detection_targets(batch: SceneBatch) -> Targets:
    """Return the objects of a batch that are matched: all but crowds, as centres and sizes from 0 to 1."""
    order, counts = matched_objects(batch)
    boxes = batch.boxes.gather(1, order[..., None].expand(-1, -1, 4)) / image_sides(batch.sizes)[:, None]
    return Targets(batch.classes.gather(1, order), corners_to_centres(boxes), counts)


def matched_objects(batch: SceneBatch) -> tuple[Int[Tensor, "B M"], Int[Tensor, " B"]]:
    """Return the numbers of the objects of each image, those that are matched first, and how many these are."""
    kept = batch.present & ~batch.crowd
    return kept.int().sort(dim=1, descending=True, stable=True).indices, kept.sum(1)


def image_sides(sizes: Int[Tensor, "B 2"]) -> Float[Tensor, "B 4"]:
    """Return width, height, width, height of images of these rows and columns: what boxes are fractions of."""
    return sizes.flip(1).repeat(1, 2).float()


class Detections(NamedTuple):
    """What a detector says of every query: its score, its class, and the corners of its box as fractions."""

    scores: Float[Tensor, "B Q"]
    classes: Int[Tensor, "B Q"]
    boxes: Float[Tensor, "B Q 4"]


def detections(output: Any) -> Detections:
    """Return the detections of the last decoder layer: of every query the likeliest class but "no object"."""
    scores, classes = output.logits[-1].float().softmax(-1)[..., :-1].max(-1)
    return Detections(scores, classes, centres_to_corners(output.boxes[-1].float()).clamp(0, 1))


def _objects(batch: SceneBatch) -> list[list[Tensor]]:
    """Return the boxes, the classes, the crowd flags and the areas of the objects, each a list over the images."""
    counts = batch.counts.tolist()
    every = (batch.boxes, batch.classes, batch.crowd, batch.areas)
    return [[row[:n] for row, n in zip(values, counts, strict=True)] for values in every]


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of a detector."""

    min_score: float = field(0.5, low=0, high=1, help="leave out boxes with a lower score")


class ObjectDetector(Predictor):
    """Images in, boxes with labels and scores out.

        detect = ObjectDetector(model, ["cat", "dog"], Preprocess(512, crop_mode="corner"))
        detect("pets.jpg")                         Boxes, in pixels of the photo
        detect("pets.jpg", min_score=0.9)

    Other images of a batch do not change an output.
    """

    inputs = {"image": Image}  # noqa: RUF012
    outputs: ClassVar[type[Output]] = Boxes
    options: ClassVar[type] = Options

    def __init__(self, model: nn.Module, labels: Sequence[str], preprocess: Preprocess | Mapping[str, Any]) -> None:
        check_outputs(model, labels, len(labels))
        self.model, self.labels, self.preprocess = model.eval(), list(labels), whole_view(preprocess)

    def predict(self, batch: list[Any], options: Any) -> list[Any]:
        return [self._boxes(image, one, options) for image, one in self.detect(batch)]

    @torch.no_grad()
    def detect(self, images: Sequence[Any]) -> Iterator[tuple[Any, Detections]]:
        """Yield every image and what each query says of it."""
        for some in batches(images, self.preprocess):
            found = detections(self.model(*letterbox(some, self.preprocess, next(self.model.parameters()))))
            for image, scores, classes, boxes in zip(some, *found, strict=True):
                yield image, Detections(scores, classes, boxes)

    def _boxes(self, image: Any, found: Detections, options: Options) -> Boxes:
        wide, high = image.width, image.height
        rows = zip(found.scores.tolist(), found.classes.tolist(), found.boxes.tolist(), strict=True)
        boxes = tuple(
            Box(left * wide, top * high, right * wide, bottom * high, self.labels[k], min(1.0, score))
            for score, k, (left, top, right, bottom) in rows
            if score >= options.min_score
        )
        return Boxes(boxes, wide, high)

    def attention(self, image: Any) -> list[Trace]:
        """Return the attention maps of all layers for one image."""
        with torch.no_grad(), watch(self.model) as seen:
            self.model(*letterbox([image], self.preprocess, next(self.model.parameters())))
        return seen.traces()
