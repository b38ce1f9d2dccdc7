"""Denoising queries: objects with noise are shown to the decoder, which learns to undo it; no matching is needed.

    class      replaced by a random one with probability 0.2
    centre     moved by up to λ w/2 and λ h/2                             λ = 0.4
    size       w and h times a number from 1 - λ to 1 + λ
    loss       cross-entropy, L1 and generalised IoU with the object that a query was made of

Matching changes its mind from step to step while boxes are bad; what a noised query must find never changes. Every
object appears once in each of `groups` groups. Query g M + m is object m of group g, behind the model's own queries.

Li, Zhang, Liu, Guo, Ni, Zhang: DN-DETR: Accelerate DETR Training by Introducing Query DeNoising. CVPR 2022.
arXiv:2203.01305
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from regard.core.shapes import Float, Tensor
from regard.losses.detection import box_losses
from regard.losses.set_matching import Matches, Targets
from regard.models.detr import DenoisingQueries


def denoising_queries(
    targets: Targets,
    num_classes: int,
    groups: int = 5,
    label_noise: float = 0.2,
    box_noise: float = 0.4,
    generator: torch.Generator | None = None,
) -> DenoisingQueries:
    """Return `groups` noised copies of the objects; the generator is on their device."""
    classes, boxes = targets.classes.repeat(1, groups), targets.boxes.repeat(1, groups, 1)
    kind: dict[str, Any] = {"device": classes.device, "generator": generator}
    flipped = torch.rand(classes.shape, **kind) < label_noise
    classes = torch.where(flipped, torch.randint(num_classes, classes.shape, **kind), classes)
    noise = (torch.rand(boxes.shape, **kind) * 2 - 1).to(boxes.dtype) * box_noise
    size = boxes[..., 2:]
    boxes = (boxes + noise * torch.cat([size / 2, size], -1)).clamp(0, 1)
    most = targets.classes.shape[1]
    group = torch.arange(groups, device=classes.device).repeat_interleave(most)
    return DenoisingQueries(classes, boxes, group, _real(targets).repeat(1, groups))


def denoising_losses(
    logits: Float[Tensor, "L B P K"], boxes: Float[Tensor, "L B P 4"], targets: Targets, groups: int = 5
) -> dict[str, Float[Tensor, "L"]]:
    """Return the losses "classes", "l1" and "giou" of the predictions for `denoising_queries`, means over them."""
    real = _real(targets).repeat(1, groups)
    (b, p), layers = real.shape, len(logits)
    image, query = (torch.arange(n, device=logits.device) for n in (b, p))
    target = query % max(1, targets.classes.shape[1])
    every = (image[:, None], query, target, real)
    matches = Matches(*(x.expand(layers, b, p).flatten(1) for x in every))
    exact = torch.promote_types(logits.dtype, torch.float32)
    classes = targets.classes.repeat(1, groups).expand(layers, -1, -1)
    entropy = F.cross_entropy(logits.flatten(0, 2).to(exact), classes.flatten(), reduction="none")
    count = groups * targets.total
    return {
        "classes": matches.sum(entropy.view(layers, b * p)) / count,
        **box_losses(boxes, targets, matches, count),
    }


def _real(targets: Targets) -> Tensor:
    return torch.arange(targets.classes.shape[1], device=targets.counts.device) < targets.counts[:, None]
