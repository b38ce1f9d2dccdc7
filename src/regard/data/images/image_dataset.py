"""Sets of images with labels, whole in memory as bytes: MNIST, Fashion-MNIST, CIFAR-10, or a folder of image files.

    ImageDataset("cifar10")            50,000 images of 32 x 32, a tenth of them for validation, and 10,000 for the test
    ImageDataset("pets", image_size=64)      pets/train/cat/*.jpg and pets/val/..., or pets/cat/*.jpg, a tenth for validation

A set of this size fits on the device whole (CIFAR-10: 150 MB). So what is drawn ahead and sent there is a batch of row
numbers, 8 bytes an image; `to(device)` takes the pixels out of the copy that lies there, and everything that is done to
them (data.augment) is done there: the host has nothing to do with pixels.

With `repeats` every image stands so often in its batch, augmented anew each time, and an epoch takes as many batches as
before: fewer images, seen more often side by side.

LeCun et al. 1998 (MNIST); Xiao, Rasul, Vollgraf: Fashion-MNIST. arXiv:1708.07747; Krizhevsky 2009 (CIFAR-10)
Hoffer et al.: Augment Your Batch. CVPR 2020. arXiv:1901.09335 (repeats)
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data import data_dir
from regard.data.batching import BatchStream, RowBatches, mix_seed
from regard.data.images.image_shards import MEAN, STD, ImageBatch
from regard.data.shards.token_shards import resolve_split
from regard.data.shuffle import Shuffle
from regard.modalities.decode_image import describe_skipped, list_image_files, load_images, resize_center_crop

log = logging.getLogger("regard")

MAX_PIXEL_BYTES = 8 * 2**30  # bytes of pixels that are held in memory; larger sets are packed (data.pictures)
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class ImageDatasetInfo:
    """What a set of a name is like."""

    file: str
    labels: tuple[str, ...]
    size: int
    mean: tuple[float, ...]  # of a channel, of values from 0 to 1
    std: tuple[float, ...]


FASHION_MNIST_LABELS = "t-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
CIFAR10_LABELS = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
IMAGE_DATASETS = {
    "mnist": ImageDatasetInfo("mnist.npz", tuple("0123456789"), 28, (0.1307,), (0.3081,)),
    "fashion_mnist": ImageDatasetInfo(
        "fashion_mnist.npz", tuple(FASHION_MNIST_LABELS.split(", ")), 28, (0.2860,), (0.3530,)
    ),
    "cifar10": ImageDatasetInfo(
        "cifar10_jpeg.npz", tuple(CIFAR10_LABELS.split(", ")), 32, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    ),
}


class LazyImageBatch(NamedTuple):
    """A batch that is not there yet: which images it holds, and of what."""

    indices: Int[Tensor, " B"]
    split: ImageSplit

    def to(self, device: torch.device | str) -> ImageBatch:
        """The images themselves, taken where they lie on the device."""
        whole = self.split.on(device)
        numbers = self.indices.to(device, non_blocking=True)
        return ImageBatch(whole.pixels[numbers], whole.labels[numbers])

    def pin(self) -> LazyImageBatch:
        """The same batch in page-locked memory."""
        return LazyImageBatch(self.indices.pin_memory(), self.split)

    def rows(self, n: int) -> LazyImageBatch:
        """Only the first n images."""
        return LazyImageBatch(self.indices[:n], self.split)


@dataclass(frozen=True)
class ImageDataset:
    """Which images, how large, which of them are for validation, and how many go into a batch."""

    path: str = "cifar10"  # mnist, fashion_mnist, cifar10; or a folder of images
    image_size: int | None = None  # pixels a side; None: as they are, of a folder 224
    batch_size: int = 128  # in a batch, all processes together
    repeats: int = 1  # times an image stands in its batch
    val_fraction: float = 0.1  # the share of the training images that is for validation, where there is no part for it
    train_fraction: float = 1.0  # of what is left, so much of every class is trained on
    seed: int = 0  # by which both are drawn
    limit: int | None = None  # only so many images of every part

    def __post_init__(self) -> None:
        if not 0 < self.val_fraction < 1:
            raise BadInput(f"data.val_fraction={self.val_fraction}: a share, more than 0 and less than 1")
        if not 0 < self.train_fraction <= 1:
            raise BadInput(f"data.train_fraction={self.train_fraction}: a share, more than 0 and at most 1")
        if self.image_size is not None and self.image_size < 1:
            raise BadInput(f"data.image_size={self.image_size}: the side of an image is at least 1 pixel")
        if self.batch_size < 1 or (self.limit is not None and self.limit < 1):
            raise BadInput(f"data.batch_size={self.batch_size} and data.limit={self.limit}: at least 1 image is needed")
        if self.repeats < 1 or self.batch_size % self.repeats:
            raise BadInput(f"data.repeats={self.repeats} does not divide the {self.batch_size} rows of a batch")

    def quick(self) -> ImageDataset:
        """A few images: enough to see that everything runs."""
        rows = min(self.batch_size, 4 * self.repeats)
        return replace(
            self, batch_size=rows, limit=48, image_size=None if self.known else min(self.image_size or 32, 32)
        )

    @property
    def known(self) -> ImageDatasetInfo | None:
        """What is known of the set, where it is one of a name."""
        return IMAGE_DATASETS.get(self.path)

    @property
    def pixels(self) -> int:
        """The side of an image."""
        return self.image_size or (self.known.size if self.known else 224)

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of every channel; of a folder, that of photographs."""
        return self.known.mean if self.known else MEAN

    @property
    def std(self) -> tuple[float, ...]:
        """The spread of every channel."""
        return self.known.std if self.known else STD

    @property
    def crop(self) -> float:
        """The share of the shorter side that is cut out of the middle."""
        return 1.0

    @property
    def resample(self) -> str:
        """How files are brought to their size."""
        return "bicubic"

    def labels(self) -> list[str]:
        """What the images are of."""
        return (
            [*self.known.labels] if self.known else _classes(_split_folders(data_dir.find_dataset(self.path))["train"])
        )

    def splits(self) -> list[str]:
        """The parts there are."""
        folder = data_dir.find_dataset(self.path)
        return sorted(SPLITS) if self.known else sorted(_split_folders(folder).keys() | {"val"})

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return resolve_split(name, self.splits(), self.path)

    def load(self, split: str) -> ImageSplit:
        """The images of a part."""
        part = self.split(split)
        held = self._named(part) if self.known else self._folder(part)
        if not len(held):
            raise BadInput(f"the part '{part}' of {self.path} holds no image")
        return held

    # -- sets of a name ------------------------------------------------------------------------------------------------

    def _named(self, part: str) -> ImageSplit:
        known = IMAGE_DATASETS[self.path]
        file = data_dir.find_dataset(self.path) / known.file
        if not file.is_file():
            raise BadInput(f"there is no {file}; the set '{self.path}' is read out of it")
        stored = "test" if part == "test" else "train"
        labels = _load_array(file, f"{stored}_labels").astype(np.int64)
        rows = self._rows(labels, part, own=part == "test")
        pixels = (
            _decode_jpeg_scans(file, stored, rows)
            if "jpeg" in known.file
            else _load_array(file, f"{stored}_images")[rows][:, None]
        )
        split = self._cut(torch.from_numpy(np.ascontiguousarray(pixels)))
        numbers = np.array([self.labels().index(name) for name in known.labels])
        return ImageSplit(self, split, torch.from_numpy(numbers[labels[rows]]))

    def _cut(self, pixels: UInt8[Tensor, "N C Y X"]) -> UInt8[Tensor, "N C S S"]:
        """Square images as they are shown: in another size, their middle."""
        grown = math.floor(self.pixels / self.crop)
        pixels = pixels if grown == pixels.shape[-1] else _resized(pixels, grown)
        at = round((grown - self.pixels) / 2)
        return pixels[..., at : at + self.pixels, at : at + self.pixels].contiguous()

    def _rows(self, labels: np.ndarray, part: str, own: bool) -> np.ndarray:
        """Which images of a file (or a folder) belong to a part, `own` where all of them do."""
        order = Shuffle(len(labels), self.seed)(np.arange(len(labels)))
        many = 0 if own else max(1, round(self.val_fraction * len(labels)))
        rows = (order[:many] if part == "val" and not own else order[many:])[: self.limit]
        if part == "train" and self.train_fraction < 1:
            each = [rows[labels[rows] == label] for label in np.unique(labels)]
            rows = np.concatenate([some[: max(1, round(self.train_fraction * len(some)))] for some in each])
        return np.sort(rows)

    # -- folders -------------------------------------------------------------------------------------------------------

    def _folder(self, part: str) -> ImageSplit:
        parts = _split_folders(data_dir.find_dataset(self.path))
        classes, own = self.labels(), part in parts and (part != "train" or "val" in parts)
        folder = parts.get(part, parts["train"])
        if strange := set(_classes(folder)) - set(classes):
            raise BadInput(f"{folder} has a class '{min(strange)}' that {parts['train']} has not")
        files = [(path, classes.index(name)) for name in _classes(folder) for path in list_image_files(folder / name)]
        if not files:
            raise BadInput(f"{folder} holds no image ({', '.join(_classes(folder)[:3])}, ...)")
        rows = self._rows(np.array([label for _, label in files]), part, own)
        side = self.pixels
        if (size := len(rows) * 3 * side * side) > MAX_PIXEL_BYTES:
            raise BadInput(
                f"{len(rows):,} images of {side} x {side} are {size / 2**30:.0f} GiB, more than are held in memory: "
                f"pack them (regard data pack {self.path} --images) and train on Pictures, or lower data.image_size"
            )
        if not len(rows):
            many = f"{len(files):,} image{'s' if len(files) > 1 else ''}"
            raise BadInput(f"{folder} holds {many}, of which none is left for the part '{part}': give more of them")
        wanted = [files[row][0] for row in rows]
        good, skipped = load_images(
            wanted, lambda image: np.asarray(resize_center_crop(image, (side, side), self.crop, self.resample))
        )
        if not good:
            first = next(describe_skipped(skipped, len(wanted)))
            raise BadInput(f"no image of the part '{part}' of {folder} can be read: {first}")
        for line in describe_skipped(skipped, len(wanted)) if skipped else ():
            log.warning(line)
        there = {files[rows[number]][1] for number, _ in good}
        if part == "train" and (unseen := [name for label, name in enumerate(classes) if label not in there]):
            log.warning(f"there is no image to train on of {', '.join(unseen)}")
        pixels = torch.from_numpy(np.stack([x for _, x in good])).permute(0, 3, 1, 2).contiguous()
        return ImageSplit(self, pixels, torch.tensor([files[rows[number]][1] for number, _ in good]), skipped)


@dataclass(frozen=True)
class ModelImageDataset(ImageDataset):
    """The same images as a saved model is shown them: in its order of labels, with its mean, spread and crop."""

    class_names: tuple[str, ...] = ()
    model_mean: tuple[float, ...] = MEAN
    model_std: tuple[float, ...] = STD
    model_crop: float = 1.0
    model_resample: str = "bicubic"

    @property
    def mean(self) -> tuple[float, ...]:
        """The model's."""
        return self.model_mean

    @property
    def std(self) -> tuple[float, ...]:
        """The model's."""
        return self.model_std

    @property
    def crop(self) -> float:
        """The model's."""
        return self.model_crop

    @property
    def resample(self) -> str:
        """The model's."""
        return self.model_resample

    def labels(self) -> list[str]:
        """The model's, which are those of the images in its own order."""
        return [*self.class_names]


class ImageSplit:
    """The images of one part, all of one size, with their labels."""

    def __init__(
        self,
        settings: ImageDataset,
        pixels: UInt8[Tensor, "N C Y X"],
        labels: Int[Tensor, " N"],
        skipped: dict[Path, str] | None = None,
    ) -> None:
        self.settings, self.pixels, self.labels = settings, pixels, labels
        self.skipped = skipped or {}  # files that could not be read, and why
        self._there: dict[str, ImageBatch] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def on(self, device: torch.device | str) -> ImageBatch:
        """All of them on a device; they are copied there once."""
        if str(device) not in self._there:
            self._there[str(device)] = ImageBatch(self.pixels.to(device), self.labels.to(device))
        return self._there[str(device)]

    def stream(self, seed: int) -> BatchStream[LazyImageBatch]:
        """Training batches without end."""
        rows, repeats = self.settings.batch_size, self.settings.repeats

        def order(epoch: int) -> RowBatches | RepeatedBatches:
            once = RowBatches(len(self), rows // repeats, mix_seed(seed, epoch))
            return once if repeats == 1 else RepeatedBatches(once, repeats)

        return BatchStream(order, lambda indices: LazyImageBatch(indices, self), lambda batch: len(batch.indices))

    def eval_batches(self, rows: int) -> Iterator[LazyImageBatch]:
        """Every image once, so many in a batch."""
        for numbers in torch.arange(len(self)).split(rows):
            yield LazyImageBatch(numbers, self)

    def fingerprint(self) -> str:
        """A few letters that change when the images or their labels do."""
        found = blake2b(digest_size=8)
        for x in (self.pixels, self.labels):
            found.update(x.numpy().data)
        return found.hexdigest()


class RepeatedBatches:
    """The batches of one epoch with every image several times in its batch, and no more batches than without that."""

    def __init__(self, once: RowBatches, times: int) -> None:
        self.once, self.times = once, times

    def __len__(self) -> int:
        return max(1, len(self.once) // self.times)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        if not 0 <= i < len(self):
            raise IndexError(i)
        return self.once[i].repeat_interleave(self.times)


# -- reading -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)  # of a large file: train and val come out of one member, and unpacking takes seconds
def _load_array(file: Path, name: str) -> np.ndarray:
    try:
        with np.load(file) as stored:
            found: np.ndarray = stored[name]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    except Exception as error:  # a damaged archive raises what its decompressor does
        raise BadInput(f"{file} is damaged: {type(error).__name__}: {error}") from None
    return found


def _decode_jpeg_scans(file: Path, part: str, rows: np.ndarray) -> np.ndarray:
    """Images that are stored as JPEG scans which share one header."""
    from PIL import Image

    head, ends = _load_array(file, "jpeg_header").tobytes(), _load_array(file, f"{part}_offsets")
    scans = _load_array(file, f"{part}_scan")
    found = []
    for row in rows.tolist():
        content = head + scans[ends[row] : ends[row + 1]].tobytes() + b"\xff\xd9"
        found.append(np.asarray(Image.open(io.BytesIO(content), formats=("JPEG",))))
    return np.stack(found).transpose(0, 3, 1, 2)


def _resized(pixels: UInt8[Tensor, "N C Y X"], side: int) -> UInt8[Tensor, "N C S S"]:
    """All images in another size, a few at a time."""
    some = [
        torch.nn.functional.interpolate(x.float(), (side, side), mode="bicubic", antialias=True, align_corners=False)
        for x in pixels.split(1000)
    ]
    return torch.cat([x.round().clamp(0, 255).byte() for x in some])


def _split_folders(folder: Path) -> dict[str, Path]:
    """The parts of a folder of images; one without train/ is all training data."""
    found = {part: folder / part for part in SPLITS if (folder / part).is_dir()}
    return found if "train" in found else {"train": folder}


def _classes(folder: Path) -> list[str]:
    """The classes of a part: its folders, in order."""
    found = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise BadInput(f"{folder} has no folders; give one folder of images for each class")
    return found
