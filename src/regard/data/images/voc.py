"""Datasets in Pascal VOC's format: an XML file for each image.

    folder/Annotations/*.xml    folder/JPEGImages/*.jpg    folder/ImageSets/Main/{train,val,test}.txt (names)

Classes are the names that occur in the training split, sorted. VOC counts pixels from 1 and includes the last, so a box
from xmin to xmax covers xmin - 1 to xmax here. Objects marked difficult are neither matched nor counted as errors: they
become crowds.

Everingham, Van Gool, Williams, Winn, Zisserman: The PASCAL Visual Object Classes Challenge. IJCV 2010
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.images.scene_batch import Scene
from regard.data.images.scene_dataset import ImageFiles, SceneDataset, clip_objects


@dataclass(frozen=True)
class VOC(SceneDataset):
    """Settings of a dataset in VOC's format."""

    path: str = "voc"  # the folder

    def splits(self) -> list[str]:
        lists = data_dir.find_dataset(self.path) / "ImageSets" / "Main"
        if not (found := sorted(part for part in ("train", "val", "test") if (lists / f"{part}.txt").is_file())):
            raise BadInput(f"{lists} has no train.txt, val.txt or test.txt with the names of a split's images")
        return found

    def labels(self) -> list[str]:
        objects = VOCSource(self.path, "train" if "train" in self.splits() else self.splits()[0]).objects
        return sorted({name for each in objects for name, *_ in each})

    def source(self, part: str) -> VOCSource:
        return VOCSource(self.path, part, self.labels())


class VOCSource:
    """The images of one split."""

    def __init__(self, path: str, part: str, labels: list[str] | None = None) -> None:
        folder = data_dir.find_dataset(path)
        names = [line.split()[0] for line in _read(folder / "ImageSets" / "Main" / f"{part}.txt").split("\n") if line]
        if len(set(names)) < len(names):
            raise BadInput(f"{folder}: a name occurs twice in the split '{part}'")
        self.files = ImageFiles(folder / "JPEGImages")
        suffixes = (".jpg", ".jpeg", ".png")
        self.names = [next((n + s for s in suffixes if n + s in self.files), n + ".jpg") for n in names]
        self.notes = [folder / "Annotations" / f"{name}.xml" for name in names]
        self.objects = [parse_voc(file) for file in self.notes]
        self.labels = labels or []
        if labels is not None and (unknown := {name for each in self.objects for name, *_ in each} - set(labels)):
            raise BadInput(f"{folder}: '{min(unknown)}' occurs in the split '{part}' but not in the training split")

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> Scene:
        objects = self.objects[i]
        return clip_objects(
            Scene(
                self.files.pixels(self.names[i]),
                np.array([self.labels.index(name) for name, *_ in objects], np.int64),
                np.array([box for _, box, _ in objects], np.float32).reshape(-1, 4),
                np.array([difficult for *_, difficult in objects], bool),
            ),
            str(self.notes[i]),
        )

    def contents(self) -> Iterable[np.ndarray]:
        yield from self.files.contents([name for name in self.names if name in self.files])
        yield np.frombuffer(repr((self.labels, self.objects)).encode(), np.uint8)


def parse_voc(file: Path) -> list[tuple[str, tuple[float, float, float, float], bool]]:
    """Return the objects of an annotation: name, box (left, top, right, bottom), difficult."""
    try:
        root = ElementTree.fromstring(_read(file))
        found = []
        for each in root.iter("object"):
            left, top, right, bottom = (
                float(each.findtext(f"bndbox/{k}", "")) for k in ("xmin", "ymin", "xmax", "ymax")
            )
            if not np.isfinite([left, top, right, bottom]).all():
                raise ValueError("a box is not finite")
            name = (each.findtext("name") or "").strip()
            if not name:
                raise ValueError("an object has no name")
            found.append((name, (left - 1, top - 1, right, bottom), each.findtext("difficult", "0").strip() == "1"))
    except (ElementTree.ParseError, ValueError) as error:
        raise BadInput(f"{file} cannot be read as an annotation of VOC: {error}") from None
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}") from None
