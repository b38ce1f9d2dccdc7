"""Datasets in YOLO's format: a text file for each image, one object in each line.

    folder/images/train/*.jpg   folder/labels/train/*.txt    or    folder/train/images/*.jpg   folder/train/labels/*.txt
    folder/data.yaml (names) or folder/classes.txt

    class  centre-x  centre-y  width  height        as fractions of the image
    class  x1 y1  x2 y2  x3 y3 ...                  a polygon, of which the mask (masks=True) and the box are taken

An image without a text file has no objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.images.run_lengths import fill_polygon
from regard.data.images.scene_batch import Scene, take_objects
from regard.data.images.scene_dataset import SPLIT_FOLDERS, ImageFiles, SceneDataset, clip_objects, find_pair
from regard.modalities.decode_image import SUFFIXES


@dataclass(frozen=True)
class YOLO(SceneDataset):
    """Settings of a dataset in YOLO's format."""

    path: str = "yolo"  # the folder
    masks: bool = False  # objects are polygons, and their masks are read too

    def splits(self) -> list[str]:
        folder = data_dir.find_dataset(self.path)
        if not (found := sorted(part for part in SPLIT_FOLDERS if find_pair(folder, part, "labels"))):
            raise BadInput(f"{folder} has neither images/train and labels/train nor train/images and train/labels")
        return found

    def labels(self) -> list[str]:
        return class_names(data_dir.find_dataset(self.path))

    def source(self, part: str) -> YOLOSource:
        images, notes = find_pair(data_dir.find_dataset(self.path), part, "labels")
        return YOLOSource(images, notes, len(self.labels()), self.masks)


class YOLOSource:
    """The images of one split."""

    def __init__(self, images: Path, notes: Path, num_classes: int, masks: bool) -> None:
        self.files, self.masks = ImageFiles(images), masks
        self.names = [name for name in self.files.names() if name.lower().endswith(SUFFIXES)]
        self.notes = [(notes / name).with_suffix(".txt") for name in self.names]
        self.objects = [parse_yolo(file, num_classes, masks) for file in self.notes]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Scene:
        pixels = self.files.pixels(self.names[i])
        rows, columns = pixels.shape[1:]
        corners = [np.array(points).reshape(-1, 2) * (columns, rows) for _, points in self.objects[i]]
        masks = None
        if self.masks:
            filled = [fill_polygon(each.ravel().tolist(), rows, columns) for each in corners]
            masks = np.array(filled, bool).reshape(-1, rows, columns)
        boxes = np.array([[*each.min(0), *each.max(0)] for each in corners], np.float32).reshape(-1, 4)
        classes = np.array([c for c, _ in self.objects[i]], np.int64)
        scene = clip_objects(Scene(pixels, classes, boxes, np.zeros(len(classes), bool), masks), str(self.notes[i]))
        return scene if scene.masks is None else take_objects(scene, scene.masks.any(axis=(1, 2)))

    def contents(self) -> Iterable[np.ndarray]:
        yield from self.files.contents(self.names)
        yield np.frombuffer(repr((self.masks, self.objects)).encode(), np.uint8)


def parse_yolo(file: Path, num_classes: int, masks: bool) -> list[tuple[int, list[float]]]:
    """Return the objects of a text file: class and the corners x, y, x, y, ... of a polygon or box, as fractions."""
    if not file.is_file():
        return []
    found = []
    for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        if not (words := line.split()):
            continue
        try:
            c, values = int(words[0]), [float(word) for word in words[1:]]
        except ValueError:
            raise BadInput(f"{file}, line {number}: expected a class and numbers, got {line[:60]!r}") from None
        if not 0 <= c < num_classes:
            raise BadInput(f"{file}, line {number}: class {c}, but there are {num_classes} names of classes")
        if not np.isfinite(values).all() or len(values) < 4 or len(values) == 5 or len(values) % 2:
            raise BadInput(
                f"{file}, line {number}: expected 4 numbers of a box or 6 or more of a polygon: {line[:60]!r}"
            )
        if len(values) == 4:
            if masks:
                raise BadInput(f"{file}, line {number}: a box has no mask; read the boxes alone with data.masks=False")
            x, y, wide, high = values
            values = [x - wide / 2, y - high / 2, x + wide / 2, y + high / 2]
        found.append((c, values))
    return found


def class_names(folder: Path) -> list[str]:
    """Return the names in classes.txt, or under `names` in data.yaml: a list in brackets, a list of lines, a map."""
    for file in (folder / "classes.txt", *sorted(folder.glob("*.yaml")), *sorted(folder.glob("*.yml"))):
        if not file.is_file():
            continue
        text = file.read_text("utf-8", "replace")
        if file.name == "classes.txt":
            return [line.strip() for line in text.splitlines() if line.strip()]
        if found := re.search(r"^names:\s*\[(.*?)\]", text, re.MULTILINE | re.DOTALL):
            return [word.strip().strip("\"'") for word in found[1].split(",") if word.strip()]
        if found := re.search(r"^names:[^\S\n]*\n((?:[ \t]*(?:-|\d+:)[^\n]*\n?)+)", text, re.MULTILINE):
            items = [re.match(r"\s*(?:-|(\d+):)\s*(.*?)\s*(?:#.*)?$", line) for line in found[1].splitlines()]
            pairs = [(int(item[1] or i), item[2].strip("\"'")) for i, item in enumerate(items) if item]
            if [number for number, _ in sorted(pairs)] != [*range(len(pairs))]:
                raise BadInput(f"{file}: the numbers of the names must be 0 to {len(pairs) - 1}, each once")
            return [name for _, name in sorted(pairs)]
    raise BadInput(f"{folder} has no classes.txt and no data.yaml with `names`")
