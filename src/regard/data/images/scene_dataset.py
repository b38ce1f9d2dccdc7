"""Datasets of scenes: what the readers share. A dataset says where its scenes come from.

    @dataclass(frozen=True)
    class Cells(SceneDataset):
        path: str = "cells"

        def labels(self):
            return ["round", "long"]

        def source(self, part):
            return CellSource(self, part)         # len(), [i] -> Scene, contents()

With `image_size` every image is resized to fit into that canvas (modalities.letterbox) and the batch has its size; else
images keep their size and a batch is padded to the largest. Scenes are kept in memory once read, if all of them fit.
"""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Size, Tensor, pair
from regard.core.validation import validate
from regard.data.base import Dataset, DatasetSplit
from regard.data.images.image_shards import MEAN, STD
from regard.data.images.scene_batch import Scene, SceneBatch, take_objects
from regard.modalities.decode_image import decode_image, read_image_file
from regard.modalities.letterbox import Letterbox

log = logging.getLogger("regard")

SPLIT_FOLDERS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}  # usual names
OBJECT_PLACES = 4  # the places for objects in a training batch are a multiple of this
MAX_CACHED_BYTES = 4 * 2**30  # scenes of a split that are kept in memory


class SceneSource(Protocol):
    """The scenes of one split, read or made when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Scene: ...

    def contents(self) -> Iterable[np.ndarray]:
        """Return arrays that change whenever a scene does."""
        ...


@dataclass(frozen=True)
class SceneDataset(Dataset):
    """Settings that all datasets of scenes have. Subclasses define `labels` and `source`."""

    image_size: Size | None = None  # rows and columns of the canvas that images are fitted into; None: as they are
    batch_size: int = field(8, group="training")  # rows per batch over all processes
    limit: int | None = None  # use only the first images of every split

    quick_settings = {"image_size": (48, 64), "batch_size": 2, "limit": 6}  # noqa: RUF012

    def __post_init__(self) -> None:
        validate(self, "data.")

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of every channel: ImageNet's."""
        return MEAN

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of every channel: ImageNet's."""
        return STD

    def labels(self) -> list[str]:
        """Return the class names: class k of the batches is labels()[k]."""
        raise NotImplementedError

    def things(self) -> list[str]:
        """Return the names of the classes with countable objects; the others are stuff."""
        return self.labels()

    def source(self, part: str) -> SceneSource:
        """Return the scenes of a split."""
        raise NotImplementedError

    def load(self, split: str) -> SceneSplit:
        part = self.split(split)
        loaded = SceneSplit(self, self.source(part))
        if not len(loaded):
            raise BadInput(f"the split '{part}' of {self.title()} has no image")
        return loaded


class SceneSplit(DatasetSplit[SceneBatch]):
    """The scenes of one split; ``split[i]`` is the i-th of them, resized."""

    def __init__(self, settings: SceneDataset, source: SceneSource) -> None:
        self.settings, self.source, self.batch_size = settings, source, settings.batch_size
        self.canvas = None if settings.image_size is None else pair(settings.image_size)
        self._cached: dict[int, Scene] = {}

    def __len__(self) -> int:
        return min(len(self.source), self.settings.limit or len(self.source))

    def __getitem__(self, i: int) -> Scene:
        if not 0 <= i < len(self):
            raise IndexError(i)
        if (found := self._cached.get(i)) is None:
            found = self.source[i]
            if self.canvas is not None:
                found = resize_scene(found, self.canvas)
            if found.nbytes * len(self) > MAX_CACHED_BYTES:
                return found
            found = self._cached[i] = replace(
                found, masks=None if found.masks is None else np.packbits(found.masks, axis=-1)
            )
        return (
            found
            if found.masks is None
            else replace(found, masks=np.unpackbits(found.masks, axis=-1, count=found.size[1]).view(bool))
        )

    def collate(self, rows: Int[Tensor, " B"]) -> SceneBatch:
        return SceneBatch.collate([self[i] for i in rows.tolist()], size=self.canvas)

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> SceneBatch:
        """Return these scenes with places for a multiple of `OBJECT_PLACES` objects: few shapes, few CUDA graphs."""
        return self.collate(rows).with_places(OBJECT_PLACES)

    def contents(self) -> Iterable[Tensor | np.ndarray]:
        return (np.array([len(self), *(self.canvas or ())]), *self.source.contents())


class ImageFiles:
    """Image files of a folder or of a zip archive, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.archive = zipfile.ZipFile(path) if path.is_file() else None
        except (OSError, zipfile.BadZipFile) as error:
            raise BadInput(f"{path} cannot be read as a zip archive: {error}") from None
        if self.archive is None and not path.is_dir():
            raise BadInput(f"there is no folder or zip archive {path}")

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        if self.archive is not None:
            return sorted(self.archive.namelist())
        return sorted(file.relative_to(self.path).as_posix() for file in self.path.rglob("*") if file.is_file())

    def __contains__(self, name: str) -> bool:
        if self.archive is not None:
            return name in self.archive.NameToInfo
        return _is_inside(name) and (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        if name not in self:
            raise BadInput(f"{self.path} has no file '{name}'")
        if self.archive is None:
            return read_image_file(self.path / name)
        try:
            return self.archive.read(name)
        except (OSError, zipfile.BadZipFile, RuntimeError) as error:
            raise BadInput(f"{self.path} is damaged at '{name}': {error}") from None

    def pixels(self, name: str) -> np.ndarray:
        """Return an image as bytes 3 Y X."""
        try:
            image = decode_image(self.read(name))
        except BadInput as error:
            raise BadInput(f"{name} in {self.path}: {error}") from None
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))

    def values(self, name: str) -> np.ndarray:
        """Return the numbers of an image of one channel, Y X, as they are stored: classes, disparities."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(self.read(name)), formats=("PNG", "TIFF", "BMP", "GIF")) as image:
                found = np.asarray(image)
        except BadInput:
            raise
        except Exception as error:  # decoders raise all kinds of errors
            raise BadInput(f"{name} in {self.path} cannot be read as a map of numbers: {error}") from None
        if found.ndim != 2:
            raise BadInput(
                f"{name} in {self.path} has {found.shape[2]} channels; expected one, with a number for every pixel"
            )
        return found

    def contents(self, names: Sequence[str]) -> Iterable[np.ndarray]:
        """Return what identifies these files: their names, and checksums (archive) or sizes and times (folder)."""
        yield np.frombuffer("\n".join(names).encode(), np.uint8)
        if self.archive is not None:
            yield np.array([self.archive.getinfo(name).CRC for name in names])
        else:
            about = [(self.path / name).stat() for name in names]
            yield np.array([(each.st_size, each.st_mtime_ns) for each in about])


def find_pair(folder: Path, part: str, kind: str) -> tuple[Path, ...]:
    """Return the folders of a split's images and of its labels or masks; nothing if there is no such split.

    Either folder/images/train and folder/labels/train, or folder/train/images and folder/train/labels.
    """
    for name in SPLIT_FOLDERS[part]:
        for pattern in (f"{{}}/{name}", f"{name}/{{}}"):
            pair = folder / pattern.format("images"), folder / pattern.format(kind)
            if all(each.is_dir() for each in pair):
                return pair
    return ()


def resize_scene(scene: Scene, canvas: tuple[int, int]) -> Scene:
    """Resize a scene to fit into a canvas: pixels with antialiasing, masks, classes and depth to the nearest."""
    from PIL import Image

    letterbox = Letterbox(scene.size, canvas)
    if letterbox.size == scene.size:
        return scene
    shape = letterbox.size[::-1]
    bands = [np.asarray(Image.fromarray(band).resize(shape, Image.Resampling.BILINEAR)) for band in scene.pixels]
    down, across = letterbox.factors
    # The pixel of the scene at the centre of each new pixel; the middle of an even factor belongs to the next pixel.
    rows, columns = (
        np.minimum(((np.arange(new) + 0.5) * (old / new)).astype(int), old - 1)
        for new, old in zip(letterbox.size, scene.size, strict=True)
    )
    masks, labels, depth = (
        None if values is None else np.ascontiguousarray(values[..., rows[:, None], columns])
        for values in (scene.masks, scene.labels, scene.depth)
    )
    boxes = None if scene.boxes is None else (scene.boxes * (across, down, across, down)).astype(np.float32)
    areas = None if scene.areas is None else scene.areas * (down * across)
    resized = replace(scene, pixels=np.stack(bands), boxes=boxes, masks=masks, labels=labels, depth=depth, areas=areas)
    return resized if masks is None else take_objects(resized, masks.any((1, 2)))  # small ones may have vanished


def clip_objects(scene: Scene, name: str) -> Scene:
    """Clip the boxes of a scene to the image; objects without area inside it are left out, with a warning."""
    assert scene.boxes is not None
    rows, columns = scene.size
    boxes = scene.boxes.clip(0, (columns, rows, columns, rows)).astype(np.float32)
    keep = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    if not keep.all():
        log.warning(f"{name}: {(~keep).sum():,} objects have no area inside their image: left out")
    return take_objects(replace(scene, boxes=boxes), keep)


def _is_inside(name: str) -> bool:
    """Whether a name in an annotation file stays inside the folder."""
    parts = Path(name).parts
    return not Path(name).is_absolute() and ".." not in parts and "\0" not in name
