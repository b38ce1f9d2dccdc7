"""Set matching: the assignment of predictions to objects that costs least in all, one prediction to one object.

    σ = argmin Σ_m C[σ(m), m]                        over all injective σ from objects to queries
    C = w_class · (-p(class)) + w_l1 · |b - b̂|₁ + w_giou · (-GIoU(b, b̂))

The costs of all layers and images are one tensor (L B Q M), computed on the device and copied to the host once; scipy's
solver (Jonker and Volgenant's, O(M² Q) an image) then takes them one by one.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872; Chen et al.: Group DETR. ICCV 2023. arXiv:2207.13085 (groups)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.modalities.box_geometry import centres_to_corners, generalized_iou


class Targets(NamedTuple):
    """The objects of a batch, padded to one number: classes, boxes as centres and sizes from 0 to 1, and how many."""

    classes: Int[Tensor, "B M"]
    boxes: Float[Tensor, "B M 4"]
    counts: Sequence[int]  # the objects of each image; the rest of its row is padding


class Matches(NamedTuple):
    """Indices of the matched pairs: `logits[layer, image, query]` belongs to `classes[image, target]`."""

    layer: Int[Tensor, "P"]
    image: Int[Tensor, "P"]
    query: Int[Tensor, "P"]
    target: Int[Tensor, "P"]


class MatchingWeights(NamedTuple):
    """Weights of the terms of the cost; the defaults are DETR's."""

    classes: float = 1.0
    l1: float = 5.0
    giou: float = 2.0


def pad_targets(classes: Sequence[Int[Tensor, "M"]], boxes: Sequence[Float[Tensor, "M 4"]]) -> Targets:
    """Return the objects of each image as one padded batch."""
    counts = [len(each) for each in classes]
    if counts != (given := [len(each) for each in boxes]):
        raise BadInput(f"Images have {counts} classes but {given} boxes; expected one box per class.")
    pad = torch.nn.utils.rnn.pad_sequence
    return Targets(pad(list(classes), batch_first=True), pad(list(boxes), batch_first=True), counts)


@torch.no_grad()
def matching_cost(
    logits: Float[Tensor, "L B Q K"],
    boxes: Float[Tensor, "L B Q 4"],
    targets: Targets,
    weights: MatchingWeights = MatchingWeights(),  # noqa: B008
) -> Float[Tensor, "L B Q M"]:
    """Return the cost of matching every query with every object, in every layer; in float32 or more."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    logits, boxes, true = logits.to(exact), boxes.to(exact), targets.boxes.to(exact)
    index = targets.classes[None, :, None].expand(*logits.shape[:3], -1)
    cost = -weights.classes * logits.softmax(-1).gather(-1, index)
    cost += weights.l1 * torch.cdist(boxes, true.expand(len(boxes), -1, -1, -1), p=1)
    pairs = centres_to_corners(boxes)[..., None, :], centres_to_corners(true)[:, None]
    return cost - weights.giou * generalized_iou(*pairs)


def assign(cost: Float[Tensor, "L B Q M"], counts: Sequence[int], groups: int = 1) -> Matches:
    """Return the pairs of least total cost in every layer and image; with more objects than queries, some stay single.

    With `groups`, the queries are as many groups of one size, each matched by itself: one object to many queries.

    A cost that is not finite is replaced by one that any finite cost undercuts: a diverged prediction then shows in the
    loss, where training looks for it.
    """
    from scipy.optimize import linear_sum_assignment

    if len(counts) != cost.shape[1] or max(counts, default=0) > cost.shape[3]:
        raise BadInput(f"A cost of shape {tuple(cost.shape)} (L B Q M) does not fit the counts {list(counts)}.")
    if cost.shape[2] % groups:
        raise BadInput(f"{cost.shape[2]} queries are not {groups} groups of one size")
    cost = cost.unflatten(2, (groups, -1)).movedim(2, 1).flatten(0, 1)  # each group of a layer as a layer
    most = torch.finfo(torch.float32).max
    exact = torch.promote_types(cost.dtype, torch.float32)
    on_host = cost.detach().to(exact).nan_to_num(most, most, most).cpu().numpy()
    parts = [np.zeros((4, 0), np.int64)]
    for layer, images in enumerate(on_host):
        for image, (costs, count) in enumerate(zip(images, counts, strict=True)):
            query, target = linear_sum_assignment(costs[:, :count])
            place = [np.full_like(query, layer // groups), np.full_like(query, image)]
            parts.append(np.stack([*place, query + layer % groups * cost.shape[2], target]))
    return Matches(*torch.from_numpy(np.concatenate(parts, 1)).to(cost.device, non_blocking=True))
