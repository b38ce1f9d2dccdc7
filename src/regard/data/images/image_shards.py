"""Images that do not fit into memory: shards of image files, read through a memory map.

    record    label (int32, -1 for none) | length of the name (uint32) | name | the bytes of the image file
    row       a record, in an order computed from (seed, epoch) as for tokens (data.shuffle)
    batch     decoded in the batching threads, centre-cropped and resized: B 3 Y X, bytes

Files are decoded by Pillow, restricted to a few formats and to reasonable sizes.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.shards.index import ShardIndex
from regard.data.shards.token_shards import find_shards, memory_map
from regard.modalities.decode_image import decode_image

if TYPE_CHECKING:
    from PIL.Image import Image

RECORD_HEADER = struct.Struct("<iI")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, values from 0 to 1


class ImageRecord(NamedTuple):
    """One packed image."""

    content: bytes  # the image file
    label: int  # -1: none
    name: str


@dataclass(frozen=True, eq=False)
class ImageBatch(TensorBatch):
    """A batch of images of one size."""

    pixels: UInt8[Tensor, "B C Y X"]
    labels: Int[Tensor, " B"]  # -1 where there is none


@dataclass(frozen=True)
class ImageShards(Dataset):
    """Settings of the dataset."""

    path: str = "pictures"  # a folder made by regard data pack --images, or the name of a dataset
    image_size: int = 224  # pixels per side
    batch_size: int = 64  # rows per batch over all processes
    limit: int | None = None  # use only the first images of every split

    quick_settings = {"image_size": 32, "batch_size": 4, "limit": 16}  # noqa: RUF012

    @property
    def folder(self) -> Path:
        return find_shards(self.path)

    def index(self) -> ShardIndex:
        index = ShardIndex.read(self.folder)
        if index.kind != "images":
            raise BadInput(f"{self.folder} holds {index.kind}, not images; pack images with --images")
        return index

    def labels(self) -> list[str]:
        """Return the class names: the folders the images were packed from."""
        if not (found := self.index().classes):
            raise BadInput(f"{self.folder} was packed without labels; pack a folder with one subfolder for each class")
        return [*found]

    @property
    def pixels(self) -> int:
        return self.image_size

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of every channel: ImageNet's."""
        return MEAN

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation of every channel: ImageNet's."""
        return STD

    def splits(self) -> list[str]:
        return sorted(self.index().splits)

    def load(self, split: str) -> ImageShardsSplit:
        """Open a split without reading it."""
        index = self.index()
        return ImageShardsSplit(self, self.split(split), index)


class ImageShardsSplit(DatasetSplit[ImageBatch]):
    """The images of one split: ``split[i]`` is the i-th packed record."""

    skipped: dict[Path, str] = {}  # noqa: RUF012  unreadable files were left out when packing

    def __init__(self, settings: ImageShards, split: str, index: ShardIndex) -> None:
        self.settings, self.split, self.index = settings, split, index
        self.batch_size = settings.batch_size
        shards = index.part(split)
        self.files = [settings.folder / s.file for s in shards]
        self.records = [memory_map(settings.folder / s.file, "uint8", s.values) for s in shards]
        self.ends = [memory_map(settings.folder / s.ends, "<u8", s.items) for s in shards]
        self.begins = np.cumsum([0, *(s.items for s in shards)]).tolist()
        self.size = min(self.begins[-1], self.begins[-1] if settings.limit is None else settings.limit)
        if not self.size:
            raise BadInput(f"the split '{split}' of {settings.path} has no image")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> ImageRecord:
        if not 0 <= i < self.size:
            raise IndexError(i)
        shard = bisect_right(self.begins, i) - 1
        at, ends = i - self.begins[shard], self.ends[shard]
        record = self.records[shard][int(ends[at - 1]) if at else 0 : int(ends[at])].tobytes()
        try:
            label, length = RECORD_HEADER.unpack_from(record)
            name = record[RECORD_HEADER.size : RECORD_HEADER.size + length].decode("utf-8")
        except (struct.error, UnicodeDecodeError):
            raise BadInput(f"{self.files[shard]} is damaged at image {at}; {_CHECK_HINT}") from None
        return ImageRecord(record[RECORD_HEADER.size + length :], label, name)

    def image(self, i: int) -> Image:
        """Return the i-th image, decoded: upright, in RGB."""
        return self._decoded(self[i])

    def _decoded(self, record: ImageRecord) -> Image:
        try:
            return decode_image(record.content)
        except BadInput as error:
            raise BadInput(
                f"{record.name} in {self.settings.path}: {error}; is a shard damaged? {_CHECK_HINT}"
            ) from None

    def collate(self, rows: Int[Tensor, " B"]) -> ImageBatch:
        from PIL import ImageOps

        side = self.settings.image_size
        pixels = np.empty((len(rows), side, side, 3), np.uint8)
        labels = torch.empty(len(rows), dtype=torch.int64)
        for row, i in enumerate(rows.tolist()):
            record = self[i]
            labels[row] = record.label
            pixels[row] = np.asarray(ImageOps.fit(self._decoded(record), (side, side)))
        return ImageBatch(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), labels)

    def fingerprint(self) -> str:
        return self.index.fingerprint(self.split)


_CHECK_HINT = "run regard data check"


def pack_record(record: ImageRecord) -> bytes:
    """Return the bytes of a record."""
    name = record.name.encode("utf-8", "replace")
    return RECORD_HEADER.pack(record.label, len(name)) + name + record.content
