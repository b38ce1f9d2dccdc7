"""Set matching: the assignment of predictions to objects that costs least in all, one prediction to one object.

    σ = argmin Σ_m C[σ(m), m]                        over all injective σ from objects to queries
    C = w_class · (-p(class)) + w_l1 · |b - b̂|₁ + w_giou · (-GIoU(b, b̂))

The costs of all layers and images are one tensor (L B Q M). On a GPU a kernel assigns them all at once
(losses/assignment_triton.py), so that nothing waits and an update can be captured as a CUDA graph; matches are padded
there. Elsewhere they are copied to the host once, and scipy's solver (Jonker and Volgenant's, O(M² Q) an image) takes
them one by one.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872; Chen et al.: Group DETR. ICCV 2023. arXiv:2207.13085 (groups)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.modalities.box_geometry import centres_to_corners, generalized_iou

HAS_TRITON = find_spec("triton") is not None  # PyTorch for CPUs comes without it


class Targets(NamedTuple):
    """The objects of a batch, padded to one number: classes, boxes as centres and sizes from 0 to 1, and how many."""

    classes: Int[Tensor, "B M"]
    boxes: Float[Tensor, "B M 4"]
    counts: Int[Tensor, " B"]  # the objects of each image; the rest of its row is padding

    @property
    def total(self) -> Int[Tensor, ""]:
        """The objects of all images, at least 1: what sums over objects are divided by."""
        return self.counts.sum().clamp(min=1)


class Matches(NamedTuple):
    """The matched pairs of every layer: `logits[layer, image, query]` belongs to `classes[image, target]`.

    Pairs come group by group, and within a group image by image.
    """

    image: Int[Tensor, "L P"]
    query: Int[Tensor, "L P"]
    target: Int[Tensor, "L P"]
    real: Bool[Tensor, "L P"]  # False: padding, which has no influence

    @property
    def layer(self) -> Int[Tensor, "L 1"]:
        """The numbers of the layers, as an index beside the others."""
        return torch.arange(len(self.query), device=self.query.device)[:, None]

    def sum(self, values: Tensor) -> Float[Tensor, " L"]:
        """Return the sum over the pairs of every layer, given a value for each pair."""
        return values.masked_fill(~self.real, 0).sum(1)


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
    first, second = (torch.nn.utils.rnn.pad_sequence(list(each), batch_first=True) for each in (classes, boxes))
    return Targets(first, second, torch.tensor(counts, device=first.device))


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


def assign(cost: Float[Tensor, "L B Q M"], counts: Int[Tensor, " B"] | Sequence[int], groups: int = 1) -> Matches:
    """Return the pairs of least total cost in every layer and image; with more objects than queries, some stay single.

    With `groups`, the queries are as many groups of one size, each matched by itself: one object to many queries.

    A cost that is not finite is replaced by one that any finite cost undercuts: a diverged prediction then shows in the
    loss, where training looks for it.
    """
    counts = torch.as_tensor(counts, device=cost.device)
    if len(counts) != cost.shape[1]:
        raise BadInput(f"A cost of shape {tuple(cost.shape)} (L B Q M) does not fit the counts {counts.tolist()}.")
    if cost.shape[2] % groups:
        raise BadInput(f"{cost.shape[2]} queries are not {groups} groups of one size")
    cost = cost.detach().unflatten(2, (groups, -1)).movedim(2, 1)  # L G B q M
    most = torch.finfo(torch.float32).max
    cost = cost.to(torch.promote_types(cost.dtype, torch.float32)).nan_to_num(most, most, most)
    if cost.is_cuda and HAS_TRITON and 0 < cost.shape[4] <= cost.shape[3]:
        return _assign_on_device(cost, counts)
    return _assign_on_host(cost, counts.tolist())


def _assign_on_device(cost: Float[Tensor, "L G B q M"], counts: Int[Tensor, " B"]) -> Matches:
    """Return the matches of every object and of the padding behind the objects."""
    from regard.losses.assignment_triton import assign_columns

    layers, groups, images, size, most = cost.shape
    found = assign_columns(cost.mT.flatten(0, 2), counts.repeat(layers * groups)).view(layers, groups, images, most)
    group, image, target = (torch.arange(n, device=cost.device) for n in (groups, images, most))
    query = found + size * group[:, None, None]
    every = image[:, None], target, target < counts[:, None]
    return Matches(*(x.expand(found.shape).flatten(1) for x in (every[0], query, *every[1:])))


def _assign_on_host(cost: Float[Tensor, "L G B q M"], counts: Sequence[int]) -> Matches:
    from scipy.optimize import linear_sum_assignment

    if max(counts, default=0) > cost.shape[4]:
        raise BadInput(f"Images have up to {max(counts)} objects, the cost {cost.shape[4]}.")
    layers = []
    for groups in cost.cpu().numpy():
        parts = [np.zeros((3, 0), np.int64)]
        for group, images in enumerate(groups):
            for image, (costs, count) in enumerate(zip(images, counts, strict=True)):
                query, target = linear_sum_assignment(costs[:, :count])
                parts.append(np.stack([np.full_like(query, image), query + group * cost.shape[3], target]))
        layers.append(np.concatenate(parts, 1))  # as many in every layer
    pairs = np.stack(layers, 1) if layers else np.zeros((3, 0, 0), np.int64)
    image, query, target = torch.from_numpy(pairs).to(cost.device, non_blocking=True)
    return Matches(image, query, target, torch.ones_like(image, dtype=torch.bool))
