"""Image classification datasets, whole in memory as bytes: MNIST, Fashion-MNIST, CIFAR-10, or a folder of images.

    ImageDataset("cifar10")              50,000 images of 32 x 32, a tenth of them for validation, and 10,000 for test
    ImageDataset("cifar10_jpeg")         the same images as JPEG of quality 75: smaller, and 2 points harder
    ImageDataset("pets", image_size=64)  pets/train/cat/*.jpg and pets/val/..., or pets/cat/*.jpg (a tenth is val; the
                                         split "all" is all of them)

The lossless CIFAR-10 is read from four arrays, {train,test}_images.npy (N 32 32 3, bytes) and {train,test}_labels.npy,
in a folder cifar10_lossless or cifar10 among the datasets, or from the published cifar-10-batches-py there. MNIST and
Fashion-MNIST are also read from the published idx files; both kinds also as a folder of your own (array_files.py).

A dataset of this size fits on the device (CIFAR-10: 150 MB). So only a batch of row numbers is sent there; `to(device)`
gathers the pixels from the copy on the device, and augmentation (data.augment) runs there: the host does not touch
pixels.

With `repeats` every image occurs several times in its batch, augmented anew each time, and an epoch has as many batches
as before: fewer images, seen more often together.

LeCun et al. 1998 (MNIST); Xiao, Rasul, Vollgraf: Fashion-MNIST. arXiv:1708.07747; Krizhevsky 2009 (CIFAR-10)
Hoffer et al.: Augment Your Batch. CVPR 2020. arXiv:1901.09335 (repeats)
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor, pair
from regard.core.validation import validate
from regard.data import data_dir
from regard.data.base import Dataset, DatasetSplit
from regard.data.batching import RowBatches, mix_seed
from regard.data.class_folders import SPLITS, class_folders, split_folders
from regard.data.datasets import describe_missing
from regard.data.images.array_files import find_arrays, is_cifar, read_array
from regard.data.images.image_shards import MEAN, STD, ImageBatch
from regard.data.shuffle import Shuffle
from regard.modalities.decode_image import describe_skipped, list_image_files, load_images, resize_center_crop
from regard.modalities.image import Preprocess

log = logging.getLogger("regard")

MAX_PIXEL_BYTES = 8 * 2**30  # largest dataset in memory; larger ones are packed (data.images.image_shards)
LUMA = 0.299, 0.587, 0.114  # of red, green and blue (ITU-R BT.601)


@dataclass(frozen=True)
class ImageDatasetInfo:
    """Properties of a known dataset."""

    file: str  # of all arrays, or of the training images
    labels: tuple[str, ...]
    size: int
    mean: tuple[float, ...]  # per channel, of values from 0 to 1
    std: tuple[float, ...]
    folders: tuple[str, ...] = ()  # names of the folder that holds the file; none: that of the dataset


FASHION_MNIST_LABELS = "t-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
FASHION_MNIST_FIRST = (9, 0, 0, 3, 0, 2, 7, 2, 5, 5, 0, 9, 5, 5, 7, 9)  # labels of its training images
CIFAR10_LABELS = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
_CIFAR10: dict[str, Any] = {
    "labels": tuple(CIFAR10_LABELS.split(", ")),
    "size": 32,
    "mean": (0.4914, 0.4822, 0.4465),
    "std": (0.2470, 0.2435, 0.2616),
}
IMAGE_DATASETS = {
    "mnist": ImageDatasetInfo("mnist.npz", tuple("0123456789"), 28, (0.1307,), (0.3081,)),
    "fashion_mnist": ImageDatasetInfo(
        "fashion_mnist.npz", tuple(FASHION_MNIST_LABELS.split(", ")), 28, (0.2860,), (0.3530,)
    ),
    "cifar10": ImageDatasetInfo("train_images.npy", **_CIFAR10, folders=("cifar10_lossless", "cifar10")),
    "cifar10_jpeg": ImageDatasetInfo("cifar10_jpeg.npz", **_CIFAR10, folders=("cifar10_jpeg", "cifar10")),
}


class LazyImageBatch(NamedTuple):
    """A batch as row numbers; the images are gathered by `to`."""

    indices: Int[Tensor, " B"]
    split: ImageSplit

    def to(self, device: torch.device | str) -> ImageBatch:
        """Gather the images on the device."""
        images = self.split.on(device)
        indices = self.indices.to(device, non_blocking=True)
        return ImageBatch(images.pixels[indices], images.labels[indices])

    def pin(self) -> LazyImageBatch:
        return LazyImageBatch(self.indices.pin_memory(), self.split)

    def rows(self, n: int) -> LazyImageBatch:
        return LazyImageBatch(self.indices[:n], self.split)


@dataclass(frozen=True)
class ImageDataset(Dataset):
    """Settings of the dataset."""

    path: str = "cifar10"  # mnist, fashion_mnist, cifar10, cifar10_jpeg; or a folder of images
    image_size: int | None = None  # pixels per side; None: the dataset's, 224 for a folder
    batch_size: int = 128  # rows per batch over all processes
    repeats: int = 1  # copies of an image in its batch
    val_fraction: float = field(0.1, above=0, below=1)  # of training images, if there is no validation split
    train_fraction: float = field(1.0, above=0, high=1)  # share of the remaining images of every class to train on
    seed: int = field(0, low=-(2**63), below=2**64)  # of both shares
    limit: int | None = None  # use only this many images of every split
    grayscale: bool = False  # one channel: 0.299 red + 0.587 green + 0.114 blue
    preprocess: Preprocess | None = None  # of the model that reads the images; None: the dataset's mean and deviation

    def __post_init__(self) -> None:
        validate(self, "data.")
        if (shown := self.preprocess) is not None and (
            shown.size[0] != shown.size[1] or shown.crop_mode in ("edges", "ratio")
        ):
            size = f"{shown.size[0]} x {shown.size[1]} pixels, crop_mode='{shown.crop_mode}'"
            raise BadInput(f"images are loaded as squares of one size; the preprocessing has {size}")
        if self.batch_size % self.repeats:
            raise BadInput(f"data.repeats={self.repeats} does not divide the {self.batch_size} rows of a batch")

    def quick(self) -> ImageDataset:
        rows = min(self.batch_size, 4 * self.repeats)
        return replace(
            self, batch_size=rows, limit=48, image_size=None if self.known else min(self.image_size or 32, 32)
        )

    @property
    def known(self) -> ImageDatasetInfo | None:
        """Properties of the dataset, if it is a known one."""
        return IMAGE_DATASETS.get(self.path) or _published_info(self.path)

    @property
    def pixels(self) -> int:
        shown = self.preprocess.size[0] if self.preprocess else self.known.size if self.known else 224
        return self.image_size or shown

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of every channel; ImageNet's for a folder."""
        if self.preprocess is not None:
            return self.preprocess.mean
        return self._channels(self.known.mean if self.known else MEAN)

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of every channel; ImageNet's for a folder."""
        if self.preprocess is not None:
            return self.preprocess.std
        return self._channels(self.known.std if self.known else STD)

    def _channels(self, values: tuple[float, ...]) -> tuple[float, ...]:
        """Return a number for each channel, as of one channel if images are to be grey."""
        if not self.grayscale or len(values) == 1:
            return values
        return (round(sum(w * x for w, x in zip(LUMA, values, strict=True)), 4),)

    @property
    def crop(self) -> float:
        """Share of the shorter side in the centre crop."""
        return self.preprocess.crop if self.preprocess is not None else 1.0

    @property
    def resample(self) -> str:
        """Interpolation of resizing."""
        return self.preprocess.resample if self.preprocess is not None else "bicubic"

    @property
    def shown(self) -> Preprocess:
        """How the model is shown an image; saved with it."""
        if self.preprocess is not None:
            return replace(self.preprocess, size=pair(self.pixels))
        return Preprocess(pair(self.pixels), len(self.mean), self.mean, self.std)

    def labels(self) -> list[str]:
        """Return the class names."""
        return (
            [*self.known.labels]
            if self.known
            else class_folders(split_folders(data_dir.find_dataset(self.path))["train"])
        )

    def splits(self) -> list[str]:
        if self.known:
            find_file(self.path)
            return sorted(SPLITS)
        found = split_folders(data_dir.find_dataset(self.path)).keys()
        return ["all", "train", "val"] if found == {"train"} else sorted(found | {"val"})

    def load(self, split: str) -> ImageSplit:
        part = self.split(split)
        loaded = self._load_known(part) if self.known else self._load_folder(part)
        if not len(loaded):
            raise BadInput(f"the split '{part}' of {self.path} has no image")
        if self.grayscale and loaded.pixels.shape[1] == 3:
            loaded.pixels = _to_gray(loaded.pixels)
        return loaded

    # -- known datasets ------------------------------------------------------------------------------------------------

    def _load_known(self, part: str) -> ImageSplit:
        info, file = self.known, find_file(self.path)
        assert info is not None
        stored_split = "test" if part == "test" else "train"
        labels = _load_array(file, f"{stored_split}_labels").astype(np.int64)
        rows = self._rows(labels, part, is_complete=part == "test")
        if "jpeg" in info.file:
            pixels = _decode_jpeg_scans(file, stored_split, rows)
        else:
            stored = _load_array(file, f"{stored_split}_images")
            _check_stored(file, stored, labels, info)
            pixels = stored[rows][:, None] if stored.ndim == 3 else stored[rows].transpose(0, 3, 1, 2)
        resized = self._resize_and_crop(torch.from_numpy(np.ascontiguousarray(pixels)))
        numbers = np.array([self.labels().index(name) for name in info.labels])
        return ImageSplit(self, resized, torch.from_numpy(numbers[labels[rows]]))

    def _resize_and_crop(self, pixels: UInt8[Tensor, "N C Y X"]) -> UInt8[Tensor, "N C S S"]:
        """Resize square images and crop the centre."""
        resized_side = math.floor(self.pixels / self.crop)
        pixels = pixels if resized_side == pixels.shape[-1] else _resize(pixels, resized_side)
        margin = round((resized_side - self.pixels) / 2)
        return pixels[..., margin : margin + self.pixels, margin : margin + self.pixels].contiguous()

    def _rows(self, labels: np.ndarray, part: str, is_complete: bool) -> np.ndarray:
        """Return which images of a file (or folder) belong to a split; `is_complete`: all of them do."""
        order = Shuffle(len(labels), self.seed)(np.arange(len(labels)))
        num_val = 0 if is_complete else max(1, round(self.val_fraction * len(labels)))
        rows = (order[:num_val] if part == "val" and not is_complete else order[num_val:])[: self.limit]
        if part == "train" and self.train_fraction < 1:
            rows_by_class = [rows[labels[rows] == label] for label in np.unique(labels)]
            rows = np.concatenate(
                [class_rows[: max(1, round(self.train_fraction * len(class_rows)))] for class_rows in rows_by_class]
            )
        return np.sort(rows)

    # -- folders -------------------------------------------------------------------------------------------------------

    def _view(self, image: Any) -> Any:
        """Return an image in colour, as large as the model reads it."""
        how = self.shown
        fill = tuple(round(255 * mean) for mean in (how.mean * 3)[:3])
        return resize_center_crop(image, how.size, how.crop, how.resample, how.crop_mode, fill, how.crop_rounding)

    def _load_folder(self, part: str) -> ImageSplit:
        parts = split_folders(data_dir.find_dataset(self.path))
        is_complete = part == "all" or (part in parts and (part != "train" or "val" in parts))
        classes = self.labels()
        folder = parts.get(part, parts["train"])
        if unknown := set(class_folders(folder)) - set(classes):
            raise BadInput(f"{folder} has a class '{min(unknown)}' that {parts['train']} does not have")
        files = [
            (path, classes.index(name)) for name in class_folders(folder) for path in list_image_files(folder / name)
        ]
        if not files:
            raise BadInput(f"{folder} has no image ({', '.join(class_folders(folder)[:3])}, ...)")
        rows = self._rows(np.array([label for _, label in files]), part, is_complete)
        side = self.pixels
        if (size := len(rows) * 3 * side * side) > MAX_PIXEL_BYTES:
            raise BadInput(
                f"{len(rows):,} images of {side} x {side} are {size / 2**30:.0f} GiB, too much for memory: pack them "
                f"(regard data pack {self.path} --images) and train on ImageShards, or lower data.image_size"
            )
        if not len(rows):
            count = f"{len(files):,} image{'s' if len(files) > 1 else ''}"
            raise BadInput(f"{folder} has {count}, of which none is left for the split '{part}': add more")
        paths = [files[row][0] for row in rows]
        good, skipped = load_images(paths, lambda image: np.asarray(self._view(image)))
        if not good:
            first = next(describe_skipped(skipped, len(paths)))
            raise BadInput(f"no image of the split '{part}' of {folder} can be read: {first}")
        for line in describe_skipped(skipped, len(paths)) if skipped else ():
            log.warning(line)
        labels_found = {files[rows[number]][1] for number, _ in good}
        if part == "train" and (unseen := [name for label, name in enumerate(classes) if label not in labels_found]):
            log.warning(f"there is no training image of {', '.join(unseen)}")
        pixels = torch.from_numpy(np.stack([x for _, x in good])).permute(0, 3, 1, 2).contiguous()
        return ImageSplit(self, pixels, torch.tensor([files[rows[number]][1] for number, _ in good]), skipped)


@dataclass(frozen=True)
class ModelImageDataset(ImageDataset):
    """The images as a saved model expects them: with its preprocessing, in its order of labels."""

    class_names: tuple[str, ...] = ()

    def labels(self) -> list[str]:
        return [*self.class_names]


class ImageSplit(DatasetSplit[Any]):
    """The images of one split, all of one size, with their labels."""

    def __init__(
        self,
        settings: ImageDataset,
        pixels: UInt8[Tensor, "N C Y X"],
        labels: Int[Tensor, " N"],
        skipped: dict[Path, str] | None = None,
    ) -> None:
        self.settings, self.pixels, self.labels = settings, pixels, labels
        self.skipped = skipped or {}  # unreadable files and the reasons
        self._on_device: dict[str, ImageBatch] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def on(self, device: torch.device | str) -> ImageBatch:
        """Return all images on a device; they are copied there once."""
        if str(device) not in self._on_device:
            self._on_device[str(device)] = ImageBatch(self.pixels.to(device), self.labels.to(device))
        return self._on_device[str(device)]

    def order(self, seed: int, epoch: int) -> RowBatches | RepeatedBatches:
        rows, repeats = self.settings.batch_size, self.settings.repeats
        batches = RowBatches(len(self), rows // repeats, mix_seed(seed, epoch))
        return batches if repeats == 1 else RepeatedBatches(batches, repeats)

    def collate(self, rows: Int[Tensor, " B"]) -> LazyImageBatch:
        return LazyImageBatch(rows, self)

    def contents(self) -> Iterable[Tensor]:
        return self.pixels, self.labels


class RepeatedBatches:
    """Batches of one epoch with every image several times in its batch, and no more batches than without."""

    def __init__(self, batches: RowBatches, times: int) -> None:
        self.batches, self.times = batches, times

    def __len__(self) -> int:
        return max(1, len(self.batches) // self.times)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.batches[i].repeat_interleave(self.times)


# -- reading -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _published_info(path: str) -> ImageDatasetInfo | None:
    """Return the properties of a folder with CIFAR-10's batches or idx files: Fashion-MNIST, known by its first labels,
    or digits."""
    place = Path(path).expanduser()
    file = find_arrays(place) if place.is_dir() else None
    if file is None:
        return None
    if is_cifar(file):
        return IMAGE_DATASETS["cifar10"]
    first = tuple(read_array(file, "train_labels")[: len(FASHION_MNIST_FIRST)].tolist())
    return IMAGE_DATASETS["fashion_mnist" if first == FASHION_MNIST_FIRST else "mnist"]


def find_file(name: str) -> Path:
    """Return the file of a known dataset, searched in each of its folders."""
    if name not in IMAGE_DATASETS:  # a folder of published files
        return find_arrays(data_dir.find_dataset(name)) or Path(name)
    info, missing = IMAGE_DATASETS[name], list[str]()
    for folder in info.folders or (name,):
        try:
            place = data_dir.find_dataset(folder)
        except BadInput as error:
            missing.append(str(error))
            continue
        file = place / info.file
        if file.is_file():
            return file
        if "jpeg" not in info.file and (arrays := find_arrays(place)) is not None:
            return arrays
        missing.append(f"there is no {file}, which the dataset '{name}' is read from{describe_missing(name)}")
    if name == "cifar10":
        searched = ", ".join(str(folder) for folder in data_dir.data_dirs())
        raise BadInput(
            f"no lossless CIFAR-10: no {info.file} in a folder {' or '.join(info.folders)} of {searched}"
            f"{describe_missing(name)}; or use data.path=cifar10_jpeg, the copy as JPEG"
        )
    raise BadInput(missing[0])


@lru_cache(maxsize=4)  # train and val come from one array, and decompressing it takes seconds
def _load_array(file: Path, name: str) -> np.ndarray:
    """Return an array of an archive, of its own file beside a .npy, or of the files in which it is published."""
    if file.suffix not in (".npy", ".npz"):
        return read_array(file, name)
    try:
        if file.suffix == ".npy":
            file = file.with_name(f"{name}.npy")
            return np.asarray(np.load(file))
        with np.load(file) as stored:
            found: np.ndarray = stored[name]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    except Exception as error:  # a damaged archive raises its decompressor's errors
        raise BadInput(f"{file} is damaged: {type(error).__name__}: {error}") from None
    return found


def _check_stored(file: Path, images: np.ndarray, labels: np.ndarray, info: ImageDatasetInfo) -> None:
    """Raise an error unless there are bytes of the dataset's shape, and a known label for each image."""
    shape = (info.size, info.size, *((3,) if len(info.mean) == 3 else ()))
    if images.dtype != np.uint8 or images.shape[1:] != shape:
        raise BadInput(
            f"{file}: expected bytes of shape N x {' x '.join(map(str, shape))}, got {images.dtype} of shape "
            f"{images.shape}"
        )
    if labels.shape != images.shape[:1] or not len(labels) or not 0 <= labels.min() <= labels.max() < len(info.labels):
        raise BadInput(f"{file}: expected {len(images):,} labels from 0 to {len(info.labels) - 1}")


def _decode_jpeg_scans(file: Path, part: str, rows: np.ndarray) -> np.ndarray:
    """Decode images stored as JPEG scans that share one header."""
    from PIL import Image

    head, ends = _load_array(file, "jpeg_header").tobytes(), _load_array(file, f"{part}_offsets")
    scans = _load_array(file, f"{part}_scan")
    found = []
    for row in rows.tolist():
        content = head + scans[ends[row] : ends[row + 1]].tobytes() + b"\xff\xd9"
        found.append(np.asarray(Image.open(io.BytesIO(content), formats=("JPEG",))))
    return np.stack(found).transpose(0, 3, 1, 2)


def _resize(pixels: UInt8[Tensor, "N C Y X"], side: int) -> UInt8[Tensor, "N C S S"]:
    """Resize all images, in chunks."""
    chunks = [
        torch.nn.functional.interpolate(x.float(), (side, side), mode="bicubic", antialias=True, align_corners=False)
        for x in pixels.split(1000)
    ]
    return torch.cat([x.round().clamp(0, 255).byte() for x in chunks])


def _to_gray(pixels: UInt8[Tensor, "N 3 Y X"]) -> UInt8[Tensor, "N 1 Y X"]:
    """Return the luma of all images, in chunks."""
    weights = torch.tensor(LUMA)[:, None, None]
    return torch.cat([(x * weights).sum(1, keepdim=True).round().byte() for x in pixels.split(1000)])
