"""Augment scenes: one draw moves pixels, boxes, masks, class map and depth together.

    SceneAugment(("flip", "affine(degrees=5)", "color_jitter"))

Augmentations that are warps are multiplied into one matrix for each image, so that pixels are interpolated once; then
colours are changed. Pixels are interpolated bilinearly; masks, classes and depth are those of the nearest pixel. Boxes
are drawn around the warped mask or, without masks, around the four warped corners, and clipped to the image. An object
leaves if less than `min_visible` of its warped box remains. Each image is warped about its own centre and keeps its
size; what comes from outside is grey, void in the class map, of unknown depth and in no mask. Areas become those of the
warped masks or boxes. Distances in `depth` stay as they are, so enlarging is for relative depth.

Everything runs on the device of the batch and never waits for it: M stays the same, and objects that remain move up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor
from regard.core.spec import build_part
from regard.data.augment import AUGMENTATIONS
from regard.data.augment.color_jitter import ColorJitter
from regard.data.augment.random_erasing import RandomErasing
from regard.data.augment.warp import GRAY
from regard.data.images.scene_batch import VOID, SceneBatch
from regard.modalities import box_geometry


class SceneAugment:
    """Random augmentation of scenes, by the names of the table of augmentations.

    Args:
        specs: augmentations in order: flip, affine, random_resized_crop, color_jitter, random_erasing.
        min_visible: share of an object's warped box that must remain in the image.
    """

    def __init__(self, specs: Sequence[str], min_visible: float = 0.2) -> None:
        parts: list[Any] = [build_part(AUGMENTATIONS, spec, "augmentation") for spec in specs]
        self.warps = [part for part in parts if hasattr(part, "matrices")]
        self.colours = [part for part in parts if isinstance(part, (ColorJitter, RandomErasing))]
        for spec, part in zip(specs, parts, strict=True):
            if part not in self.warps and part not in self.colours:
                raise BadInput(
                    f"the augmentation '{spec}' does not say where it moves pixels, so boxes and masks cannot follow; "
                    "for scenes use flip, affine, random_resized_crop, color_jitter or random_erasing"
                )
        self.min_visible = min_visible

    def __call__(self, batch: SceneBatch, generator: torch.Generator) -> SceneBatch:
        if self.warps:
            y, x = batch.sizes.to(torch.get_default_dtype()).unbind(1)
            drawn = [warp.matrices(len(y), y, x, generator) for warp in self.warps]
            total = drawn[0]
            for matrices in drawn[1:]:  # the result is the first image, looked up through all of them
                total = compose(total, matrices)
            batch = warp_scenes(batch, total, self.min_visible)
        pixels = batch.pixels
        for change in self.colours:
            pixels = change(pixels, generator)
        return SceneBatch(pixels.where(batch.inside[:, None], 0), *batch[1:]) if self.colours else batch


def compose(first: Float[Tensor, "B 2 3"], second: Float[Tensor, "B 2 3"]) -> Float[Tensor, "B 2 3"]:
    """Return the matrices of a warp by `first` and then by `second`."""
    linear = first[:, :, :2] @ second
    return torch.cat([linear[:, :, :2], linear[:, :, 2:] + first[:, :, 2:]], 2)


def warp_scenes(batch: SceneBatch, matrices: Float[Tensor, "B 2 3"], min_visible: float = 0.0) -> SceneBatch:
    """Warp scenes: pixel p of a result is the scene at matrix · p, both relative to the image's centre, in pixels."""
    b, _, y, x = batch.pixels.shape
    middle = batch.sizes.flip(1).to(matrices.dtype) / 2  # x, y
    rows, columns = (torch.arange(side, device=matrices.device) + 0.5 for side in (y, x))
    from_middle = torch.stack(torch.broadcast_tensors(columns, rows[:, None])).flatten(1) - middle[:, :, None]
    places = matrices[:, :, :2] @ from_middle + (matrices[:, :, 2] + middle)[:, :, None]  # B 2 YX, edges at 0 and size
    inside = batch.inside
    grid = torch.stack([places[:, 0] * (2 / x) - 1, places[:, 1] * (2 / y) - 1], -1).view(b, y, x, 2)
    shifted = (batch.pixels.to(grid.dtype) - GRAY).where(inside[:, None], 0)
    found = F.grid_sample(shifted, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + GRAY
    pixels = found.round_().clamp_(0, 255).where(inside[:, None], 0).byte()

    nearest = places.floor().long()
    known = ((nearest >= 0) & (nearest < batch.sizes.flip(1)[:, :, None])).all(1) & inside.flatten(1)  # B YX
    index = (nearest[:, 1] * x + nearest[:, 0]).where(known, 0)

    def take(values: Tensor, outside: Any) -> Tensor:
        """Return the nearest values of maps, B Y X or B M Y X."""
        if not values.numel():
            return values
        flat = values.flatten(-2)
        at, seen = (index, known) if flat.ndim == 2 else (index[:, None], known[:, None])
        return flat.gather(-1, at.expand(flat.shape)).where(seen, outside).view(values.shape)

    masks, labels, depth = take(batch.masks, False), take(batch.labels, VOID), take(batch.depth, torch.nan)
    hull = _warp_boxes(batch.boxes, matrices, middle)
    limits = batch.sizes.flip(1).repeat(1, 2)[:, None].to(hull.dtype)
    boxes = torch.minimum(hull.clamp(min=0), limits)
    remains = box_geometry.area(boxes)
    keep = batch.present & (remains > 0) & (remains >= min_visible * box_geometry.area(hull))
    if masks.shape[-1]:
        boxes = _around(masks).to(boxes.dtype)
        keep = keep & (boxes[..., 2] > 0)
    counts, classes, boxes, crowd, masks = _move_up(keep, batch, boxes, masks)
    areas = masks.sum((2, 3)).to(boxes.dtype) if masks.shape[-1] else box_geometry.area(boxes)
    return SceneBatch(pixels, batch.sizes, counts, classes, boxes, crowd, masks, labels, depth, areas)


def _warp_boxes(
    boxes: Float[Tensor, "B M 4"], matrices: Float[Tensor, "B 2 3"], middle: Float[Tensor, "B 2"]
) -> Float[Tensor, "B M 4"]:
    """Return the boxes around the warped corners of boxes."""
    left, top, right, bottom = boxes.to(matrices.dtype).unbind(-1)
    corners = torch.stack([left, top, right, top, right, bottom, left, bottom], -1).unflatten(-1, (4, 2))  # B M 4 2
    offset = (matrices[:, :, 2] + middle)[:, None, None]
    (a, b), (c, d) = (row.unbind(1) for row in matrices[:, :, :2].unbind(1))
    inverse = torch.stack([d, -b, -c, a], 1).unflatten(1, (2, 2)) / (a * d - b * c)[:, None, None]
    moved = (corners - offset) @ inverse.mT[:, None] + middle[:, None, None]
    return torch.cat([moved.amin(2), moved.amax(2)], -1).to(boxes.dtype)


def _around(masks: Bool[Tensor, "B M Y X"]) -> Float[Tensor, "B M 4"]:
    """Return the box around each mask; 0 for an empty one."""
    ends = []
    for along in (masks.any(2), masks.any(3)):  # columns, rows
        n, some = along.shape[-1], along.any(-1)
        first, last = along.byte().argmax(-1), n - along.flip(-1).byte().argmax(-1)
        ends.append((first.where(some, 0), last.where(some, 0)))
    (left, right), (top, bottom) = ends
    return torch.stack([left, top, right, bottom], -1).float()


def _move_up(
    keep: Bool[Tensor, "B M"], batch: SceneBatch, boxes: Float[Tensor, "B M 4"], masks: Bool[Tensor, "B M Y X"]
) -> tuple[Tensor, ...]:
    """Return counts, classes, boxes, crowd and masks of the objects that remain, in their order."""
    order = torch.sort((~keep).byte(), stable=True).indices
    row = torch.arange(len(keep), device=keep.device)[:, None]
    here = keep[row, order]
    each = [values[row, order] for values in (batch.classes, boxes, batch.crowd, masks)]
    return keep.sum(1), *(values * here.view(*here.shape, *[1] * (values.ndim - 2)) for values in each)
