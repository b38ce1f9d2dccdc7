"""Arithmetic of boxes as tensors (..., 4): conversions, areas, intersection over union and its generalised form.

    corners     left, top, right, bottom             what the functions below take
    centres     centre x, centre y, width, height    what DETR predicts, as fractions of the image
    xywh        left, top, width, height             what COCO stores

    IoU  = |A ∩ B| / |A ∪ B|                         0 to 1
    GIoU = IoU - (|H| - |A ∪ B|) / |H|               -1 to 1; H: the smallest box around A and B

The leading dimensions broadcast: `iou(a, b)` compares boxes one by one, `iou(a[:, None], b)` all pairs. Where both
areas are zero the quotient 0 / 0 counts as 0, so neither value nor gradient is ever NaN.

Rezatofighi, Tsoi, Gwak, Sadeghian, Reid, Savarese: Generalized Intersection over Union. CVPR 2019. arXiv:1902.09630
"""

from __future__ import annotations

import torch

from regard.core.shapes import Float, Tensor

Boxes = Float[Tensor, "... 4"]


def centres_to_corners(boxes: Boxes) -> Boxes:
    """Convert (centre x, centre y, width, height) to (left, top, right, bottom)."""
    centre, size = boxes.split(2, -1)
    return torch.cat([centre - size / 2, centre + size / 2], -1)


def corners_to_centres(boxes: Boxes) -> Boxes:
    """Convert (left, top, right, bottom) to (centre x, centre y, width, height)."""
    low, high = boxes.split(2, -1)
    return torch.cat([(low + high) / 2, high - low], -1)


def xywh_to_corners(boxes: Boxes) -> Boxes:
    """Convert (left, top, width, height) to (left, top, right, bottom)."""
    low, size = boxes.split(2, -1)
    return torch.cat([low, low + size], -1)


def area(boxes: Boxes) -> Float[Tensor, "..."]:
    """Return the area of boxes given by their corners; 0 where a side is negative."""
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    return sides[..., 0] * sides[..., 1]  # the gradient of prod waits for the device


def intersection(a: Boxes, b: Boxes) -> Float[Tensor, "..."]:
    """Return the area that two boxes share."""
    return area(torch.cat([torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])], -1))


def iou(a: Boxes, b: Boxes) -> Float[Tensor, "..."]:
    """Return intersection over union, 0 to 1."""
    shared = intersection(a, b)
    return _divide(shared, area(a) + area(b) - shared)


def generalized_iou(a: Boxes, b: Boxes) -> Float[Tensor, "..."]:
    """Return the generalised intersection over union, -1 to 1; it has a gradient for boxes that do not touch too."""
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    hull = area(torch.cat([torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:])], -1))
    return _divide(shared, union) - _divide(hull - union, hull)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return a / b.where(b > 0, 1)
