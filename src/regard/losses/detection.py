"""Losses of DETR: matched predictions learn the class, the box and the mask of their object, all others "no object".

    classes    cross-entropy over all queries; the last class is "no object" and weighs 0.1
    l1         Σ |b - b̂|₁ / objects                  boxes as centres and sizes, fractions of the image
    giou       Σ (1 - GIoU(b, b̂)) / objects
    focal      Σ mean over pixels of the focal loss / objects
    dice       Σ dice loss / objects

All decoder layers go through one call: predictions have a layer dimension in front, each layer is matched by itself,
and each loss is a vector over the layers. Its last element is the model's loss, the others are the auxiliary losses.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from regard.core.shapes import Bool, Float, Tensor
from regard.losses.dice import dice_loss
from regard.losses.focal import sigmoid_focal_loss
from regard.losses.set_matching import Matches, Targets
from regard.modalities.box_geometry import centres_to_corners, generalized_iou


def detection_losses(
    logits: Float[Tensor, "L B Q K"],
    boxes: Float[Tensor, "L B Q 4"],
    targets: Targets,
    matches: Matches,
    no_object_weight: float = 0.1,
    num_boxes: float | Tensor | None = None,
) -> dict[str, Float[Tensor, "L"]]:
    """Return the losses "classes", "l1" and "giou" of every layer.

    Args:
        logits: of every class, the last one "no object".
        boxes: predicted centres and sizes, fractions of the image.
        targets: the objects.
        matches: what `assign(matching_cost(...))` returns.
        no_object_weight: weight of "no object" in the cross-entropy, against its number.
        num_boxes: the number of objects to divide by; in data-parallel training its mean over the processes. With
            groups of queries, as many times.
    """
    exact = torch.promote_types(logits.dtype, torch.float32)
    num_classes, queries = logits.shape[-1] - 1, logits.shape[2]
    labels = torch.full((*logits.shape[:2], queries + 1), num_classes, device=logits.device)
    query = matches.query.masked_fill(~matches.real, queries)  # padding writes to a query that does not exist
    labels[matches.layer, matches.image, query] = targets.classes[matches.image, matches.target]
    labels = labels[..., :-1]
    weight = torch.ones(num_classes + 1, dtype=exact, device=logits.device)
    weight[-1:].fill_(no_object_weight)  # weight[-1] = x would copy x from the host, which no CUDA graph may do
    entropy = F.cross_entropy(logits.flatten(0, 2).to(exact), labels.flatten(), weight, reduction="none")
    total_weight = weight[labels].flatten(1).sum(1)

    classes = entropy.view(len(logits), -1).sum(1) / total_weight
    return {"classes": classes, **box_losses(boxes, targets, matches, _count(targets, num_boxes))}


def box_losses(
    boxes: Float[Tensor, "L B Q 4"], targets: Targets, matches: Matches, count: float | Tensor
) -> dict[str, Float[Tensor, "L"]]:
    """Return the losses "l1" and "giou" of the matched pairs, divided by `count`."""
    exact = torch.promote_types(boxes.dtype, torch.float32)
    found = boxes[matches.layer, matches.image, matches.query].to(exact)
    true = targets.boxes[matches.image, matches.target].to(exact)
    giou = generalized_iou(centres_to_corners(found), centres_to_corners(true))
    return {"l1": matches.sum((found - true).abs().sum(-1)) / count, "giou": matches.sum(1 - giou) / count}


def mask_losses(
    masks: Float[Tensor, "L B Q y x"],
    true_masks: Bool[Tensor, "B M Y X"],
    targets: Targets,
    matches: Matches,
    num_boxes: float | Tensor | None = None,
) -> dict[str, Float[Tensor, "L"]]:
    """Return the losses "focal" and "dice" of every layer; predicted logits are resized to the true masks."""
    exact = torch.promote_types(masks.dtype, torch.float32)
    true = true_masks[matches.image, matches.target].flatten(0, 1).flatten(1).to(exact)
    found = masks[matches.layer, matches.image, matches.query].to(exact).flatten(0, 1)[:, None]
    found = F.interpolate(found, true_masks.shape[-2:], mode="bilinear", align_corners=False).flatten(1)
    losses = {"focal": sigmoid_focal_loss(found, true).mean(1), "dice": dice_loss(found, true)}
    count = _count(targets, num_boxes)
    return {name: matches.sum(loss.view(matches.real.shape)) / count for name, loss in losses.items()}


def _count(targets: Targets, num_boxes: float | Tensor | None) -> float | Tensor:
    if num_boxes is None:
        return targets.total
    return num_boxes.clamp(min=1) if isinstance(num_boxes, Tensor) else max(1, num_boxes)
