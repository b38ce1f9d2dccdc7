"""Depth estimation: how far away every pixel of one image is, up to a scale and a shift of inverse depth.

    objective    the scale-and-shift-invariant loss of inverse depth, which in each image is scaled to run from 0 to 1,
                 plus the squared error without the fit
    metric       AbsRel, δ1 to δ3, RMSE (metres, or the unit of the data), after the best scale and shift; AbsRel and δ1
                 of the best constant (in inverse depth) for each image; loss
    decoding     none
    predict      `DepthEstimator`: images in, relative depth out

The model returns inverse depth of any scale and shift, so metrics are taken after both were fitted to the truth of each
image (least squares in inverse depth), as the paper does; no pixel is put farther than the farthest true one.

Near and far must not be swapped, and the paper's fit would hide that: a prediction and its negative have one loss. Here
a negative scale counts as 0, as if the prediction were constant, in the loss and in the metrics. The squared error
without the fit leads such a prediction, and that of an untrained model, to the right side.

Ranftl, Lasinger, Hafner, Schindler, Koltun: MiDaS. TPAMI 2022. arXiv:1907.01341; Ranftl, Bochkovskiy, Koltun: Vision
Transformers for Dense Prediction (DPT). ICCV 2021. arXiv:2103.13413
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.config import field, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor
from regard.core.trace import Trace
from regard.losses.scale_shift_invariant import fit_scale_and_shift, scale_shift_invariant_loss
from regard.metrics.base import Metric, fraction, loss_metric
from regard.metrics.depth import DEPTH_METRICS, DepthErrors
from regard.modalities.depth import Depth
from regard.modalities.image import Image, Preprocess
from regard.tasks.base import call_with_state
from regard.tasks.image.scene_base import (
    SceneTask,
    SceneTaskConfig,
    batches,
    letterbox,
    map_to_photo,
    on_canvas,
    whole_view,
)
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.data.images.scene_batch import SceneBatch


CONSTANT_METRICS = (  # of the best constant for each image: what a model must beat
    Metric("constant_abs_rel", "AbsRel of a constant", higher_is_better=False, digits=4),
    fraction("constant_delta1", "δ1 of a constant"),
)


@dataclass(frozen=True)
class Config(SceneTaskConfig):
    """Settings of training."""

    gradient_weight: float = field(0.5, low=0)  # of the term that keeps edges sharp
    anchor_weight: float = field(
        10.0, low=0
    )  # of the squared error without the fit; below 1 a small model stays constant

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> DepthEstimation:
        """Return the task on these data: a dataset of scenes with depth."""
        return DepthEstimation(self, data, seed)


class DepthEstimation(SceneTask):
    """Train and evaluate a model of inverse depth, B 1 Y X."""

    metrics = (*DEPTH_METRICS, *CONSTANT_METRICS, loss_metric("per image"))
    name = "depth_estimation"
    num_outputs = 1

    def loss(
        self, model: nn.Module, batch: SceneBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        batch = self.augmented(batch, rng)
        found, pass_state = call_with_state(model, self.images(batch))
        total = self.inverse_loss(found[:, 0], batch)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def inverse_loss(self, found: Float[Tensor, "B Y X"], batch: SceneBatch) -> Float[Tensor, ""]:
        """Return the loss of inverse depth, times the images."""
        depth, known = self.targets(batch)
        true = scale_to_one(1 / depth.where(known, 1), known)
        anchor = (found.float() - true).square().where(known, 0).sum() / (2 * known.sum()).clamp(min=1)
        fitted = without_swapped(found, true, known)
        invariant = scale_shift_invariant_loss(fitted, true, known, self.config.gradient_weight)
        return len(depth) * (invariant + self.config.anchor_weight * anchor)

    def targets(self, batch: SceneBatch) -> tuple[Float[Tensor, "B Y X"], Bool[Tensor, "B Y X"]]:
        """Return the depth of every pixel of the canvas, and where it is known."""
        if not batch.depth.numel() and len(batch.pixels):
            raise BadInput(f"{self.data.title()} has no depth, which depth estimation is trained on.")
        depth = on_canvas(batch.depth, self.preprocess.size, float("nan"))
        return depth, depth.isfinite() & (depth > 0)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "preprocess": to_dict(self.preprocess)}

    def card(self) -> str:
        y, x = self.preprocess.size
        return f"{self.data.title()}, {len(self.dataset('train')):,} images of at most {y} x {x} pixels"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the errors of depth and the loss on a split, at the size in which the data come."""
        scores, constant, total, images = DepthErrors(), DepthErrors(), 0.0, 0
        for batch in self.eval_batches(model, split):
            found = model(self.images(batch))[:, 0].float()
            total, images = total + float(self.inverse_loss(found, batch)), images + len(found)
            depth, known = self.targets(batch)
            scores.update(aligned_depth(found, depth, known), depth, known)
            constant.update(aligned_depth(torch.zeros_like(found), depth, known), depth, known)
        of_constant = {f"constant_{name}": value for name, value in constant.compute().items()}
        kept = {metric.key: of_constant[metric.key] for metric in CONSTANT_METRICS}
        return scores.compute() | kept | {"loss": total / images, "images": images}


def scale_to_one(values: Float[Tensor, "B Y X"], known: Bool[Tensor, "B Y X"]) -> Float[Tensor, "B Y X"]:
    """Return values of each image shifted and scaled to the range from 0 to 1 over its known pixels."""
    low = values.where(known, torch.inf).amin((1, 2), keepdim=True)
    high = values.where(known, -torch.inf).amax((1, 2), keepdim=True)
    return ((values - low) / (high - low).where(high > low, 1)).where(known, 0)


def without_swapped(
    inverse: Float[Tensor, "B Y X"], true: Float[Tensor, "B Y X"], known: Bool[Tensor, "B Y X"]
) -> Float[Tensor, "B Y X"]:
    """Return predictions with a constant in place of those images whose fitted scale is negative."""
    scale, _ = fit_scale_and_shift(inverse.detach().float(), true, known)
    return inverse.where((scale >= 0)[:, None, None], 0)


def aligned_depth(
    inverse: Float[Tensor, "B Y X"], depth: Float[Tensor, "B Y X"], known: Bool[Tensor, "B Y X"]
) -> Float[Tensor, "B Y X"]:
    """Return depth from inverse depth with the scale and shift that fit the truth best, at most the farthest true."""
    true = (1 / depth.where(known, 1)).where(known, 0)
    inverse = without_swapped(inverse, true, known)
    scale, shift = fit_scale_and_shift(inverse, true, known)
    lowest = true.where(known, torch.inf).amin((1, 2)).nan_to_num(posinf=1.0)
    return 1 / torch.maximum(scale[:, None, None] * inverse + shift[:, None, None], lowest[:, None, None])


# -- the predictor -----------------------------------------------------------------------------------------------------


class DepthEstimator(Predictor):
    """Images in, relative depth out: 0 at the nearest pixel of an image, 1 at the farthest, linear in inverse depth.

        measure = DepthEstimator(model, Preprocess(384, crop_mode="corner"))
        measure("street.jpg")                      Depth, one number for every pixel of the photo

    Other images of a batch do not change an output.
    """

    inputs = {"image": Image}  # noqa: RUF012
    outputs = Depth

    def __init__(self, model: nn.Module, preprocess: Preprocess | Mapping[str, Any]) -> None:
        outputs = getattr(getattr(model, "config", None), "num_outputs", 1)
        if outputs != 1:
            raise BadInput(f"The model has {outputs:,} outputs for a pixel; depth needs 1.")
        self.model, self.preprocess = model.eval(), whole_view(preprocess)

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Any) -> list[Depth]:
        like, found = next(self.model.parameters()), list[Depth]()
        for some in batches(batch, self.preprocess):
            for image, inverse in zip(some, self.model(letterbox(some, self.preprocess, like)[0]), strict=True):
                values = map_to_photo(inverse[0].float(), self.preprocess, image, mode="bicubic")
                low, high = values.aminmax()
                found.append(Depth(((high - values) / (high - low).clamp(min=1e-12)).cpu().numpy()))
        return found

    def attention(self, image: Any) -> list[Trace]:
        """Return the attention maps of all layers for one image."""
        with torch.no_grad(), watch(self.model) as seen:
            self.model(letterbox([image], self.preprocess, next(self.model.parameters()))[0])
        return seen.traces()
