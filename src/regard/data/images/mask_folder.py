"""Folders of images and of PNGs that hold the class of every pixel.

    folder/train/images/*.jpg    folder/train/masks/*.png      or     folder/images/train/*    folder/masks/train/*
    folder/classes.txt           the names, one in each line: class k is line k

A mask has one channel (grey or palette; a palette's numbers count, not its colours) and its image's name and size.
Pixels of 255 are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.images.scene_batch import VOID, Scene
from regard.data.images.scene_dataset import SPLIT_FOLDERS, ImageFiles, SceneDataset, find_pair
from regard.data.images.yolo import class_names
from regard.modalities.decode_image import SUFFIXES


@dataclass(frozen=True)
class MaskFolder(SceneDataset):
    """Settings of a folder of images and masks."""

    path: str = "photos"  # the folder

    def splits(self) -> list[str]:
        folder = data_dir.find_dataset(self.path)
        if not (found := sorted(part for part in SPLIT_FOLDERS if find_pair(folder, part, "masks"))):
            raise BadInput(f"{folder} has neither train/images and train/masks nor images/train and masks/train")
        return found

    def labels(self) -> list[str]:
        return class_names(data_dir.find_dataset(self.path))

    def things(self) -> list[str]:
        return []

    def source(self, part: str) -> MaskFolderSource:
        images, masks = find_pair(data_dir.find_dataset(self.path), part, "masks")
        return MaskFolderSource(images, masks, len(self.labels()))


class MaskFolderSource:
    """The images of one split."""

    def __init__(self, images: Path, masks: Path, num_classes: int) -> None:
        self.images, self.masks, self.num_classes = ImageFiles(images), ImageFiles(masks), num_classes
        self.names = [name for name in self.images.names() if name.lower().endswith(SUFFIXES)]
        self.mask_names = [str(PurePosixPath(name).with_suffix(".png")) for name in self.names]
        if missing := [name for name in self.mask_names if name not in self.masks]:
            raise BadInput(f"{masks} has no {missing[0]}, the mask of an image ({len(missing):,} are missing)")

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Scene:
        pixels, labels = self.images.pixels(self.names[i]), self.masks.values(self.mask_names[i])
        where = f"{self.masks.path / self.mask_names[i]}"
        if labels.shape != pixels.shape[1:]:
            sizes = f"{labels.shape[0]} x {labels.shape[1]} pixels, its image {pixels.shape[1]} x {pixels.shape[2]}"
            raise BadInput(f"{where} has {sizes}; expected the same")
        wrong = (labels != VOID) & ~((labels >= 0) & (labels < self.num_classes))
        if wrong.any():
            raise BadInput(
                f"{where} has the class {labels[wrong][0]}; expected 0 to {self.num_classes - 1}, or {VOID} to ignore"
            )
        return Scene(pixels, labels=labels.astype(np.uint8))

    def contents(self) -> Iterable[np.ndarray]:
        yield from self.images.contents(self.names)
        yield from self.masks.contents(self.mask_names)
