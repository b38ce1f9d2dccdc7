"""Datasets in COCO's format: a JSON file of images, categories and annotations for each split, and the images.

    folder/annotations/instances_train2017.json   folder/train2017/*.jpg             COCO
    folder/instances_train.json                   folder/*.zip or folder/images/     BCCD
    folder/train/_annotations.coco.json           folder/train/*.jpg                 Roboflow

Category ids may have gaps: class k is the k-th category by id. Boxes are clipped to their image. An object's `area`, by
which COCO calls it small, medium or large, is read; without it that of its mask or box counts. Left out, with one
warning for all: objects whose box has no area inside the image, objects whose polygons enclose nothing, and images
whose file is missing. With `class_maps` the masks become the class of every pixel, smaller objects in front: what
nobody annotated is "background", the last class, and crowds are ignored. Refused: ids that occur twice or refer to
nothing, numbers that are not finite, masks and files of another size than the image's.

Lin et al.: Microsoft COCO. ECCV 2014. arXiv:1405.0312; BCCD: github.com/Shenggan/BCCD_Dataset
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import BadInput
from regard.core.shapes import Size
from regard.data import data_dir
from regard.data.images.run_lengths import decode_segmentation
from regard.data.images.scene_batch import VOID, Scene, object_areas, take_objects
from regard.data.images.scene_dataset import SPLIT_FOLDERS, ImageFiles, SceneDataset

log = logging.getLogger("regard")

BACKGROUND = "background"
MAX_MASK_BYTES = 2 * 2**30  # of the masks of one image


@dataclass(frozen=True)
class COCO(SceneDataset):
    """Settings of a dataset in COCO's format."""

    path: str = "coco"  # the folder
    masks: bool = False  # read segmentations too
    class_maps: bool = False  # read segmentations as the class of every pixel

    def labels(self) -> list[str]:
        return [*self.categories(), BACKGROUND] if self.class_maps else self.categories()

    def things(self) -> list[str]:
        return self.categories()

    def categories(self) -> list[str]:
        """Return the names of the categories, by id."""
        _, categories = _categories(_read_json(self._file("train" if "train" in self.splits() else self.splits()[0])))
        return categories

    def splits(self) -> list[str]:
        folder = data_dir.find_dataset(self.path)
        if not (found := sorted(part for part in SPLIT_FOLDERS if _annotation_files(folder, part))):
            tried = "instances_train.json, annotations/instances_train*.json or train/_annotations.coco.json"
            raise BadInput(f"{folder} has no annotations in COCO's format; expected {tried}")
        return found

    def _file(self, part: str) -> Path:
        found = _annotation_files(data_dir.find_dataset(self.path), part)
        if len(found) > 1:
            raise BadInput(f"which annotations are the split '{part}': {', '.join(map(str, found))}?")
        return found[0]

    def source(self, part: str) -> COCOSource:
        folder, masks = data_dir.find_dataset(self.path), self.masks or self.class_maps
        return COCOSource(self._file(part), folder, self.categories(), masks, self.class_maps)


@dataclass(frozen=True)
class BCCD(COCO):
    """Blood cells: 364 microscope images of 640 x 480 with boxes of red and white cells and platelets."""

    path: str = "bccd"
    image_size: Size | None = (480, 640)  # the images' own


class COCOSource:
    """The images of one annotation file, checked when it is opened."""

    def __init__(self, file: Path, folder: Path, labels: list[str], masks: bool, class_maps: bool = False) -> None:
        self.file, self.masks, self.class_maps, self.background = file, masks, class_maps, len(labels)
        stored = _read_json(file)
        ids, names = _categories(stored)
        if unknown := set(names) - set(labels):
            raise BadInput(f"{file} has a category '{min(unknown)}' that the training split does not have")
        if class_maps and len(labels) >= VOID:
            raise BadInput(f"{file} has {len(labels):,} categories; class maps have at most {VOID - 1}")
        self.class_of = {each: labels.index(name) for each, name in zip(ids, names, strict=True)}
        images = {each["id"]: each for each in _unique(stored, "images", file, {"file_name", "width", "height"})}
        self.annotations: dict[Any, list[dict[str, Any]]] = {key: [] for key in images}
        for each in _unique(stored, "annotations", file, {"image_id", "category_id", "bbox"}):
            if each["image_id"] not in images:
                raise BadInput(f"{file}: annotation {each['id']} is of image {each['image_id']}, which is not there")
            if each["category_id"] not in self.class_of:
                raise BadInput(f"{file}: annotation {each['id']} has an unknown category {each['category_id']}")
            self.annotations[each["image_id"]].append(_checked(each, images[each["image_id"]], file))
        self.files = ImageFiles(_image_root(file, folder, [each["file_name"] for each in images.values()]))
        self.images = [each for each in images.values() if each["file_name"] in self.files]
        self._warn(len(images))

    def _warn(self, num_images: int) -> None:
        """Say what is left out; raise if nothing remains."""
        if missing := num_images - len(self.images):
            log.warning(f"{self.file}: {missing:,} of {num_images:,} images are not in {self.files.path}: left out")
        empty = Counter(_left_out(a, self.masks) for image in self.images for a in self.annotations[image["id"]])
        for why, many in empty.items():
            if why:
                log.warning(f"{self.file}: {many:,} objects {why}: left out")
        if num_images and not self.images:
            raise BadInput(f"none of the {num_images:,} images of {self.file} is in {self.files.path}")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Scene:
        image = self.images[i]
        pixels = self.files.pixels(image["file_name"])
        size = image["height"], image["width"]
        if pixels.shape[1:] != size:
            found = f"{pixels.shape[1]} x {pixels.shape[2]}"
            raise BadInput(f"{image['file_name']} has {found} pixels, but {self.file} says {size[0]} x {size[1]}")
        objects = [each for each in self.annotations[image["id"]] if not _left_out(each, self.masks)]
        masks = None
        if self.masks:
            if (memory := len(objects) * size[0] * size[1]) > MAX_MASK_BYTES:
                raise BadInput(
                    f"{len(objects):,} masks of {image['file_name']} take {memory / 2**30:.1f} GiB, more than the "
                    f"{MAX_MASK_BYTES / 2**30:.0f} GiB that one image may have; read boxes alone with data.masks=False"
                )
            masks = np.zeros((len(objects), *size), bool)
            for mask, each in zip(masks, objects, strict=True):
                try:
                    mask[:] = decode_segmentation(each["segmentation"], *size)
                except BadInput as error:
                    raise BadInput(f"{self.file}: annotation {each['id']}: {error}") from None
        scene = Scene(
            pixels,
            np.array([self.class_of[each["category_id"]] for each in objects], np.int64),
            np.array([each["corners"] for each in objects], np.float32).reshape(-1, 4),
            np.array([bool(each.get("iscrowd", 0)) for each in objects], bool),
            masks,
        )
        given = [each.get("area", found) for each, found in zip(objects, object_areas(scene).tolist(), strict=True)]
        scene = replace(scene, areas=np.array(given, np.float32))
        scene = scene if masks is None else take_objects(scene, masks.any(axis=(1, 2)))  # thinner than a pixel: dropped
        return replace(scene, labels=self._class_map(scene), masks=None) if self.class_maps else scene

    def _class_map(self, scene: Scene) -> np.ndarray:
        """Return the class of every pixel, from the masks of the objects."""
        assert scene.masks is not None
        assert scene.classes is not None
        assert scene.crowd is not None
        found = np.full(scene.size, self.background, np.uint8)
        for n in np.argsort(-scene.masks.sum((1, 2)), kind="stable"):
            found[scene.masks[n]] = VOID if scene.crowd[n] else scene.classes[n]
        return found

    def contents(self) -> Iterable[np.ndarray]:
        yield np.frombuffer(self.file.read_bytes() + bytes([self.masks + self.class_maps]), np.uint8)
        yield from self.files.contents([each["file_name"] for each in self.images])


def _checked(annotation: dict[str, Any], image: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return an annotation with its box as corners inside the image."""
    where = f"{file}: annotation {annotation['id']}"
    box = annotation["bbox"]
    if not (isinstance(box, list) and len(box) == 4 and all(_is_finite(x) for x in box)):
        raise BadInput(f"{where} has the box {box}; expected left, top, width and height, four finite numbers")
    left, top, wide, high = map(float, box)
    across, down = image["width"], image["height"]
    corners = [max(0.0, left), max(0.0, top), min(across, left + wide), min(down, top + high)]
    if not (_is_finite(area := annotation.get("area", 0)) and area >= 0):
        raise BadInput(f"{where} has the area {area}; expected a finite number, at least 0")
    return {**annotation, "corners": corners}


def _left_out(annotation: dict[str, Any], masks: bool) -> str:
    """Return why an object is left out, or nothing."""
    left, top, right, bottom = annotation["corners"]
    if right <= left or bottom <= top:
        return "have no area inside their image"
    shape = annotation.get("segmentation")
    if masks and not (isinstance(shape, dict) or (isinstance(shape, list) and any(len(each) >= 6 for each in shape))):
        return "have no polygon of three points or more"
    return ""


def _unique(stored: dict[str, Any], kind: str, file: Path, needed: set[str]) -> list[dict[str, Any]]:
    """Return the images or annotations of a file; each has an id of its own and the fields that are needed."""
    seen: set[Any] = set()
    for each in _items(stored, kind, file):
        if missing := ({"id"} | needed) - set(each):
            raise BadInput(f"{file}: one of '{kind}' has no '{min(missing)}': {str(each)[:80]}")
        if not isinstance(each["id"], (int, str)) or each["id"] in seen:
            raise BadInput(f"{file}: the id {each['id']} occurs twice in '{kind}', or is neither a number nor a word")
        seen.add(each["id"])
        if kind == "images":
            sides = each["width"], each["height"]
            if not isinstance(each["file_name"], str) or not all(_is_finite(s) and s >= 1 for s in sides):
                raise BadInput(f"{file}: image {each['id']} needs a file name and a size, got {str(each)[:80]}")
    return _items(stored, kind, file)


def _items(stored: dict[str, Any], kind: str, file: Path | str) -> list[dict[str, Any]]:
    found = stored.get(kind)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadInput(f"{file} is not in COCO's format: it has no list of {kind}")
    return found


def _categories(stored: dict[str, Any]) -> tuple[list[int], list[str]]:
    """Return the ids of the categories, in order, and their names."""
    found = _items(stored, "categories", "the file")
    if not all(isinstance(each.get("id"), int) and isinstance(each.get("name"), str) for each in found):
        raise BadInput("each category needs a whole number as id, and a name")
    for what in ("id", "name"):
        value, many = Counter(each[what] for each in found).most_common(1)[0] if found else ("", 0)
        if many > 1:
            raise BadInput(f"two categories have the {what} '{value}'")
    found = sorted(found, key=lambda each: each["id"])
    return [each["id"] for each in found], [each["name"] for each in found]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{file} is not in COCO's format: expected an object with images, annotations and categories")
    return found


def _annotation_files(folder: Path, part: str) -> list[Path]:
    """Return the annotation files of a split: those of the first naming scheme that has any."""
    for name in SPLIT_FOLDERS[part]:
        for pattern in (
            *(f"instances_{name}*.json", f"annotations/instances_{name}*.json", f"annotations/{name}*.json"),
            *(f"{name}/_annotations.coco.json", f"{name}.json"),
        ):
            if found := sorted(folder.glob(pattern)):
                return found
    return []


def _image_root(file: Path, folder: Path, names: list[str]) -> Path:
    """Return the folder or archive with the images: the first of the usual places that has one of them."""
    part = file.stem.removeprefix("instances_")
    places = [file.parent, *(folder / each for each in ("images", f"images/{part}", part, "")), *folder.glob("*.zip")]
    known = [place for place in places if place.exists()]
    for place in known:
        files = ImageFiles(place)
        if any(name in files for name in names):
            return place
    return known[0]


def _is_finite(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)
