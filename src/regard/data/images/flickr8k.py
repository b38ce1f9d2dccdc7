"""Flickr8k: 8,000 photographs with five captions each; or a folder of one's own in the same form.

    captions.jsonl(.gz)      one object a line: {"image": "1.jpg", "split": "train", "captions": ["A dog runs .", ...]}
    *.zip or images/         the photographs

With `encoder`, a network with ImageNet weights (weights.other.efficientnet_lite) reads every photograph once, and its
last grid is stored as float16 in the cache folder ($REGARD_CACHE, 2.9 GB with mirrored ones): a captioner whose encoder
is frozen then never runs it in training. With ``encoder=None`` batches have pixels. A photograph is resized to a square
whole, since captions speak of its edges too.

Hodosh, Young, Hockenmaier: Framing Image Description as a Ranking Task. JAIR 47, 2013.
The photographs are for research.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from regard.core.config import from_dict
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Int, Tensor
from regard.core.validation import validate
from regard.data import data_dir
from regard.data.base import Dataset
from regard.data.images.captions import CaptionSplit, check_captions, clean_caption
from regard.data.images.scene_dataset import ImageFiles
from regard.data.stored_rows import available_cores, locked
from regard.modalities.image import Preprocess
from regard.runtime.hardware import cache_dir
from regard.weights.other import efficientnet_lite

if TYPE_CHECKING:
    from regard.models.efficientnet_lite import EfficientNetLite
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")

ROWS = {"cpu": 8, "cuda": 64}  # photographs that the encoder reads together


@dataclass(frozen=True)
class Flickr8k(Dataset):
    """Settings of the dataset."""

    corpus: str = "flickr8k"  # or the path of a folder in the same form
    encoder: Literal["lite0", "lite1", "lite2"] | None = "lite2"  # whose annotation vectors are stored; None: pixels
    image_size: int = 260  # pixels per side
    batch_size: int = 64  # captions per batch over all processes
    min_count: int = 5  # words of the training captions that occur less often are <unk>
    max_length: int = 30  # words of a caption; the rest is cut off
    flip: bool = True  # mirror every second photograph in training
    limit: int | None = None  # use only the first photographs of every split

    quick_settings = {"encoder": None, "image_size": 40, "batch_size": 8, "min_count": 1, "limit": 8}  # noqa: RUF012

    def __post_init__(self) -> None:
        validate(self, "data.")

    def splits(self) -> list[str]:
        return sorted({row.split for row in self.rows()})

    def rows(self) -> list[CaptionRow]:
        """Return the photographs and their captions."""
        return read_captions(data_dir.find_dataset(self.corpus))

    def files(self) -> ImageFiles:
        """Return the photographs, by name."""
        folder = data_dir.find_dataset(self.corpus)
        archives = sorted(folder.glob("*.zip"))
        if len(archives) > 1:
            raise BadInput(f"{folder} has {len(archives)} zip archives; expected one, with the photographs")
        return ImageFiles(archives[0] if archives else folder / "images")

    def part(self, split: str) -> list[CaptionRow]:
        """Return the photographs of a split."""
        name = self.split(split)
        return [row for row in self.rows() if row.split == name][: self.limit]

    @property
    def preprocess(self) -> Preprocess:
        """How photographs are shown to a model: whole, as a square."""
        shown: dict[str, Any] = {"mean": [127 / 255] * 3, "std": [128 / 255] * 3}
        return from_dict(Preprocess, {**shown, "size": (self.image_size,) * 2, "crop_mode": "squash"})

    def load_encoder(self) -> EfficientNetLite | None:
        """Return the network whose annotation vectors are stored; None where batches have pixels."""
        return None if self.encoder is None else efficientnet_lite.load(self.encoder)[0]

    def build_tokenizer(self) -> Tokenizer:
        """Build a vocabulary of the frequent words of the training captions."""
        from regard.tokens.word_tokenizer import build_vocabulary

        captions = [each for row in self.part("train") for each in row.captions]
        return build_vocabulary((clean_caption(each).split() for each in captions), 10**6, self.min_count, lower=True)

    def load(self, split: str, tokenizer: Tokenizer) -> CaptionSplit:
        part = self.part(split)
        flip = self.flip and self.split(split) == "train"
        photographs = Photographs(self.files(), [row.image for row in part], self.preprocess)
        encoder = self.load_encoder()
        pictures = photographs if encoder is None else StoredVectors(photographs, encoder, flip)
        return CaptionSplit(pictures, [row.captions for row in part], tokenizer, self.batch_size, self.max_length, flip)


class CaptionRow(NamedTuple):
    """A photograph of a dataset."""

    image: str
    split: str
    captions: list[str]


class Photographs:
    """Photographs as bytes, read when they are asked for."""

    def __init__(self, files: ImageFiles, names: list[str], preprocess: Preprocess) -> None:
        self.files, self.names, self.preprocess = files, names, preprocess

    def __call__(self, numbers: Int[Tensor, " B"], flipped: Bool[Tensor, " B"]) -> Tensor:
        with ThreadPoolExecutor(available_cores()) as threads:  # decoders of images release Python's lock
            pixels = torch.stack([*threads.map(self.view, numbers.tolist())])
        return torch.where(flipped[:, None, None, None], pixels.flip(-1), pixels)

    def view(self, number: int) -> Tensor:
        """Return a photograph as the model sees it, as bytes C Y X."""
        name = self.names[number]
        try:
            return torch.from_numpy(np.array(self.preprocess.view(self.files.read(name)))).permute(2, 0, 1)
        except BadInput as error:
            raise BadInput(f"{name} in {self.files.path}: {error}") from None

    def contents(self) -> Iterable[np.ndarray]:
        yield np.frombuffer(str(self.preprocess).encode(), np.uint8)
        yield from self.files.contents(self.names)


class StoredVectors:
    """Annotation vectors of photographs, computed once and stored in the cache folder."""

    def __init__(self, photographs: Photographs, encoder: EfficientNetLite, flip: bool) -> None:
        self.photographs, self.encoder = photographs, encoder
        self.values = [self.stored(flipped) for flipped in ((False, True) if flip else (False,))]

    def __call__(self, numbers: Int[Tensor, " B"], flipped: Bool[Tensor, " B"]) -> Tensor:
        found = torch.from_numpy(self.values[0][numbers.numpy()])
        if bool(flipped.any()):
            found[flipped] = torch.from_numpy(self.values[1][numbers[flipped].numpy()])
        return found

    def contents(self) -> Iterable[np.ndarray]:
        yield np.frombuffer(_digest(self.encoder.state_dict().values()).encode(), np.uint8)
        yield from self.photographs.contents()

    def stored(self, flipped: bool) -> np.ndarray:
        """Return the vectors N M D of all photographs, mapped from the file that has them; made if there is none."""
        name = f"vectors-{_digest(self.contents())}{'-flipped' if flipped else ''}.npy"
        path = cache_dir() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):  # runs that begin together wait for the first
            if not path.is_file():
                self._compute(path, flipped)
        return np.load(path, mmap_mode="r")

    @torch.inference_mode()
    def _compute(self, path: Path, flipped: bool) -> None:
        total, made = len(self.photographs.names), None
        part = path.with_suffix(f".part{os.getpid()}")
        log.warning(f"computing the annotation vectors of {total:,} photographs, once: {path}")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        encoder = deepcopy(self.encoder).to(device)
        for numbers in torch.arange(total).split(ROWS[device]):
            pixels = self.photographs(numbers, torch.full_like(numbers, flipped, dtype=torch.bool)).to(device)
            images = self.photographs.preprocess.normalize(pixels)
            found = encoder.grid(images).flatten(1, 2).half().cpu().numpy()
            if made is None:
                made = np.lib.format.open_memmap(part, "w+", np.float16, (total, *found.shape[1:]))
            made[numbers.numpy()] = found
        if made is not None:
            made.flush()
            part.replace(path)


def _digest(arrays: Iterable[Any]) -> str:
    found = blake2b(digest_size=8)
    for x in arrays:
        found.update(np.ascontiguousarray(x).data)
    return found.hexdigest()


@lru_cache(maxsize=2)
def read_captions(folder: Path) -> list[CaptionRow]:
    """Return the photographs of a folder, their splits and captions."""
    file = next((folder / name for name in ("captions.jsonl.gz", "captions.jsonl") if (folder / name).is_file()), None)
    if file is None:
        raise BadInput(f"{folder} has no captions.jsonl or captions.jsonl.gz; see the head of data/images/flickr8k.py")
    try:
        content = file.read_bytes()
        lines = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8").splitlines()
        rows = [CaptionRow(**json.loads(line)) for line in lines if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError, TypeError, json.JSONDecodeError) as error:
        raise BadInput(f"{file} needs one object a line with image, split and captions: {error}") from None
    if not rows:
        raise BadInput(f"{file} has no captions")
    for row in rows:
        check_captions(row.captions, f"{row.image} in {file}")
    return rows
