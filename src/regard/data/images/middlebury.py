"""Middlebury stereo: nine scenes with measured disparity, sixteen views with depth.

    depth = 100 / (disparity + offset)      relative: larger is farther, the unit differs from scene to scene

The offset is the difference of the two cameras' principal points, 0 for rectified pairs of 2001 and 2003. Unknown
disparity (0 in the files) is NaN. Too little to train on: for checks, and to test what was trained on other data.

Scharstein, Szeliski: A Taxonomy and Evaluation of Dense Two-Frame Stereo Correspondence Algorithms. IJCV 2002
Scharstein et al.: High-Resolution Stereo Datasets with Subpixel-Accurate Ground Truth. GCPR 2014 (motorcycle)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.images.scene_batch import Scene
from regard.data.images.scene_dataset import ImageFiles, SceneDataset

MIDDLEBURY_SPLITS = {
    "train": ("tsukuba", "venus", "barn2", "bull", "poster"),
    "val": ("sawtooth",),
    "test": ("teddy", "cones", "motorcycle"),
}
OFFSETS = {"motorcycle": 31.086}  # pixels at this size


@dataclass(frozen=True)
class Middlebury(SceneDataset):
    """Settings of the dataset."""

    batch_size: int = 1

    def labels(self) -> list[str]:
        return []

    def source(self, part: str) -> MiddleburySource:
        return MiddleburySource(part)


class MiddleburySource:
    """The views of one split that have a disparity."""

    def __init__(self, part: str) -> None:
        self.files = ImageFiles(data_dir.find_dataset("middlebury_stereo") / "middlebury_stereo.zip")
        views = [f"{scene}/{{}}{side}" for scene in MIDDLEBURY_SPLITS[part] for side in ("left", "right")]
        self.views = [view for view in views if f"{view.format('disp_')}.png" in self.files]

    def __len__(self) -> int:
        return len(self.views)

    def __getitem__(self, i: int) -> Scene:
        view = self.views[i]
        pixels = self.files.pixels(f"{view.format('')}.jpg")
        disparity = self.files.values(f"{view.format('disp_')}.png").astype(np.float32) / 256
        if disparity.shape != pixels.shape[1:]:
            raise BadInput(f"{view.format('')} has {pixels.shape[1:]} pixels and {disparity.shape} disparities")
        offset = OFFSETS.get(view.split("/")[0], 0.0)
        known = disparity > 0
        return Scene(pixels, depth=np.where(known, 100 / np.where(known, disparity + offset, 1), np.nan))

    def contents(self) -> Iterable[np.ndarray]:
        names = [f"{view.format('')}.jpg" for view in self.views]
        return self.files.contents([*names, *(f"{view.format('disp_')}.png" for view in self.views)])
