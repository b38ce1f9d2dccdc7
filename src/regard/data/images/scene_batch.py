"""Images with structure: pixels with boxes, masks, a class map and depth, one batch type for all dense tasks.

    Scene          one image with what is known about it, as arrays
    SceneBatch     many of them, padded at the right and the bottom, as tensors

A pixel (y, x) covers the square from x to x + 1 and y to y + 1: a box around one pixel at the origin is (0, 0, 1, 1),
and the box of a whole image is (0, 0, columns, rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Int, Pair, Tensor
from regard.data.base import TensorBatch
from regard.data.ragged import round_up

VOID = 255  # in a class map: ignored


@dataclass(frozen=True, eq=False)
class Scene:
    """One image with its annotations; None where the data have no such annotation."""

    pixels: np.ndarray  # uint8, C Y X
    classes: np.ndarray | None = None  # M
    boxes: np.ndarray | None = None  # M 4: left, top, right, bottom in pixels
    crowd: np.ndarray | None = None  # M
    masks: np.ndarray | None = None  # M Y X
    labels: np.ndarray | None = None  # uint8, Y X; VOID: ignored
    depth: np.ndarray | None = None  # Y X; NaN: unknown
    areas: np.ndarray | None = None  # M, square pixels, where annotated; else those of the masks or boxes count

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pixels.shape[1], self.pixels.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.pixels, self.classes, self.boxes, self.crowd, self.masks, self.labels, self.depth, self.areas)
        return sum(array.nbytes for array in arrays if array is not None)

    def __len__(self) -> int:
        """Return the number of objects."""
        return 0 if self.classes is None else len(self.classes)


@dataclass(frozen=True, eq=False)
class SceneBatch(TensorBatch):
    """A batch of images with their annotations. M is the most objects of an image, and may be 0."""

    pixels: UInt8[Tensor, "B C Y X"]  # 0 in the padding
    sizes: Int[Tensor, "B 2"]  # rows and columns of each image inside the padding
    counts: Int[Tensor, " B"]  # objects of each image
    classes: Int[Tensor, "B M"]  # 0 where there is no object
    boxes: Float[Tensor, "B M 4"]  # left, top, right, bottom in pixels; 0 where there is no object
    crowd: Bool[Tensor, "B M"]  # a region of many objects: not matched, not counted as an error
    masks: Bool[Tensor, "B M my mx"]  # pixels of each object; B M 0 0 where the data have no masks
    labels: UInt8[Tensor, "B ly lx"]  # class of each pixel, VOID: ignored; B 0 0 where the data have none
    depth: Float[Tensor, "B dy dx"]  # metres or relative, NaN: unknown; B 0 0 where the data have none
    areas: Float[Tensor, "B M"]  # of each object, square pixels: annotated, or those of the masks, or of the boxes

    @property
    def present(self) -> Bool[Tensor, "B M"]:
        """Which of the M places of each image hold an object."""
        return torch.arange(self.classes.shape[1], device=self.counts.device) < self.counts[:, None]

    @property
    def inside(self) -> Bool[Tensor, "B Y X"]:
        """Which pixels belong to the image, not to its padding."""
        rows, columns = (torch.arange(side, device=self.sizes.device) for side in self.pixels.shape[2:])
        return (rows < self.sizes[:, :1])[:, :, None] & (columns < self.sizes[:, 1:])[:, None, :]

    def with_places(self, multiple: int) -> Self:
        """Return the batch with places for a multiple of so many objects of each image; the new ones are empty."""
        more = round_up(self.classes.shape[1], multiple) - self.classes.shape[1]
        padded = {
            name: torch.cat([x, x.new_zeros(len(x), more, *x.shape[2:])], 1)
            for name in ("classes", "boxes", "crowd", "masks", "areas")
            for x in (getattr(self, name),)
        }
        return replace(self, **padded) if more else self

    @classmethod
    def collate(cls, scenes: Sequence[Scene], multiple: int = 1, size: Pair | None = None) -> Self:
        """Pad scenes to one size, by default the largest of them, rounded up to a `multiple`."""
        if not scenes:
            raise BadInput("a batch needs at least one scene")
        for name in ("masks", "labels", "depth"):
            if len({getattr(scene, name) is None for scene in scenes}) > 1:
                raise BadInput(f"some scenes of a batch have {name} and some have none; expected all or none")
        b, m = len(scenes), max(len(scene) for scene in scenes)
        sizes = np.array([scene.size for scene in scenes])
        y, x = (round_up(int(side), multiple) for side in size or sizes.max(0))
        if (sizes > (y, x)).any():
            raise BadInput(f"a scene of {sizes.max(0)[0]} x {sizes.max(0)[1]} pixels does not fit into {y} x {x}")
        pixels = np.zeros((b, len(scenes[0].pixels), y, x), np.uint8)
        classes, crowd = np.zeros((b, m), np.int64), np.zeros((b, m), bool)
        boxes, areas = np.zeros((b, m, 4), np.float32), np.zeros((b, m), np.float32)
        first = scenes[0]
        masks = np.zeros((b, m, *((0, 0) if first.masks is None else (y, x))), bool)
        labels = np.full((b, *((0, 0) if first.labels is None else (y, x))), VOID, np.uint8)
        depth = np.full((b, *((0, 0) if first.depth is None else (y, x))), np.nan, np.float32)
        for i, scene in enumerate(scenes):
            (rows, columns), n = scene.size, len(scene)
            pixels[i, :, :rows, :columns] = scene.pixels
            if scene.classes is not None and scene.boxes is not None:
                classes[i, :n], boxes[i, :n] = scene.classes, scene.boxes
                areas[i, :n] = object_areas(scene)
            if scene.crowd is not None:
                crowd[i, :n] = scene.crowd
            if scene.masks is not None:
                masks[i, :n, :rows, :columns] = scene.masks
            if scene.labels is not None:
                labels[i, :rows, :columns] = scene.labels
            if scene.depth is not None:
                depth[i, :rows, :columns] = scene.depth
        counts = np.array([len(scene) for scene in scenes])
        arrays = (pixels, sizes, counts, classes, boxes, crowd, masks, labels, depth, areas)
        return cls(*map(torch.from_numpy, arrays))


def take_objects(scene: Scene, which: Any) -> Scene:
    """Return a scene with these of its objects (numbers, or True for each that stays)."""
    names = ("classes", "boxes", "crowd", "masks", "areas")
    known = {name: array for name in names if (array := getattr(scene, name)) is not None}
    return replace(scene, **{name: array[which] for name, array in known.items()})


def object_areas(scene: Scene) -> np.ndarray:
    """Return the area of each object in square pixels: as annotated, or that of its mask, or that of its box."""
    if scene.areas is not None:
        return scene.areas
    if scene.masks is not None:
        return scene.masks.sum((1, 2))
    assert scene.boxes is not None
    return (scene.boxes[:, 2:] - scene.boxes[:, :2]).prod(1)


def mask_boxes(masks: np.ndarray) -> np.ndarray:
    """Return the box (left, top, right, bottom) around each mask M Y X; zeros for an empty one."""
    boxes = np.zeros((len(masks), 4), np.float32)
    for box, mask in zip(boxes, masks, strict=True):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        if len(rows):
            box[:] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return boxes
