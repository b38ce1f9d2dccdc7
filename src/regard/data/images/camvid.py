"""CamVid: 701 frames of road scenes, 480 x 360, with a class for every pixel.

    CamVid()                            class maps: 11 classes, void pixels ignored
    CamVid(annotations="panoptic")      also segments: cars, pedestrians and bicyclists are things, one segment for each
                                        connected component; each other class of a frame is one segment of stuff

CamVid does not tell objects apart. A component (8 neighbours) is taken for one object, so that parked cars that touch
are one. Components of fewer than `min_pixels` pixels, slivers seen through railings, are void.

Brostow, Fauqueur, Cipolla: Semantic Object Classes in Video. Pattern Recognition Letters 2009
Badrinarayanan, Kendall, Cipolla: SegNet. arXiv:1511.00561 (the 11 classes and the splits)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Size
from regard.data import data_dir
from regard.data.images.scene_batch import VOID, Scene, mask_boxes
from regard.data.images.scene_dataset import ImageFiles, SceneDataset

CAMVID_LABELS = (
    *("sky", "building", "pole", "road", "pavement", "tree", "sign symbol", "fence"),
    *("car", "pedestrian", "bicyclist"),
)
CAMVID_THINGS = ("car", "pedestrian", "bicyclist")
UNLABELLED = 11  # in the files
EIGHT_NEIGHBOURS = np.ones((3, 3), bool)


@dataclass(frozen=True)
class CamVid(SceneDataset):
    """Settings of the dataset."""

    image_size: Size | None = (360, 480)  # the frames' own
    annotations: Literal["semantic", "panoptic"] = "semantic"
    min_pixels: int = field(40)  # of a component that counts as an object

    def labels(self) -> list[str]:
        return [*CAMVID_LABELS]

    def things(self) -> list[str]:
        return [*CAMVID_THINGS]

    def source(self, part: str) -> CamVidSource:
        return CamVidSource(self, part)


class CamVidSource:
    """The frames of one split."""

    def __init__(self, settings: CamVid, part: str) -> None:
        self.settings, self.part = settings, part
        self.files = ImageFiles(data_dir.find_dataset("camvid") / "camvid_360x480.zip")
        self.names = [name for name in self.files.names() if name.startswith(f"{part}/") and name.endswith(".jpg")]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Scene:
        name = self.names[i]
        labels = self.files.values(f"{self.part}annot/{name.split('/')[1][:-4]}.png")
        labels = np.where(labels == UNLABELLED, VOID, labels).astype(np.uint8)
        pixels = self.files.pixels(name)
        if labels.shape != pixels.shape[1:]:
            raise BadInput(f"{name} has {pixels.shape[1:]} pixels and its class map {labels.shape}; expected the same")
        if self.settings.annotations == "semantic":
            return Scene(pixels, labels=labels)
        things = [CAMVID_LABELS.index(name) for name in CAMVID_THINGS]
        classes, masks = connected_segments(labels, things, self.settings.min_pixels)
        labels = np.where(masks.any(0), labels, VOID).astype(np.uint8)  # slivers are void in both
        return Scene(pixels, classes, mask_boxes(masks), np.zeros(len(classes), bool), masks, labels)

    def contents(self) -> Iterable[np.ndarray]:
        maps = [f"{self.part}annot/{name.split('/')[1][:-4]}.png" for name in self.names]
        yield from self.files.contents([*self.names, *maps])
        yield np.frombuffer(repr(self.settings).encode(), np.uint8)


def connected_segments(labels: np.ndarray, things: Sequence[int], min_pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the segments of a class map: classes M and masks M Y X, one per component of a thing, one per stuff."""
    from scipy.ndimage import label

    classes, masks = [], []
    for c in np.unique(labels[labels != VOID]).tolist():
        where = labels == c
        if c not in things:
            classes.append(c)
            masks.append(where)
            continue
        components, _ = label(where, EIGHT_NEIGHBOURS)
        sizes = np.bincount(components.ravel())
        for number in 1 + np.flatnonzero(sizes[1:] >= min_pixels):
            classes.append(c)
            masks.append(components == number)
    return np.array(classes, np.int64), np.array(masks, bool).reshape(-1, *labels.shape)
