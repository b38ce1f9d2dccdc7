"""Captions of composed scenes, made by rule: what is where, from left to right.

    a red bag on the wall
    a white digit on the floor and a blue shirt on the wall and a green boot on the floor

A scene has one to three printed digits and pieces of clothing (Fashion-MNIST) in six named colours over a textured wall
and floor (data.images.named_things). Its one caption follows from it: things in the order of their middles' columns,
each on the wall or the floor by its middle's row. Scenes in which that is not clear (middles closer than `MIN_GAP`
side by side, or to the horizon) are drawn again, so a caption is right or wrong, and exact matches can be counted.

A scene is computed from (seed, split, row). Its cut-outs in val and test come from images and fonts that are never
trained on. Which pixels belong to which thing is known exactly (`CaptionedScene.masks`), so where a captioner looked at
a word can be compared with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.core.config import field, from_dict
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset
from regard.data.images.captions import CaptionSplit
from regard.data.images.image_shards import MEAN, STD
from regard.data.images.named_things import COLOURS, THINGS, draw_things, load_things
from regard.modalities.image import Preprocess
from regard.tokens.tokenizer import Tokenizer

PLACES = ("wall", "floor")
MIN_GAP = 0.08  # of middles from each other's columns and from the horizon, as a share of the image's side
MAX_THINGS = 3


class CaptionedScene(NamedTuple):
    """A scene: its pixels, the visible pixels of its things, name and colour of each, and its caption."""

    pixels: np.ndarray  # uint8, 3 Y X
    masks: np.ndarray  # M Y X, from left to right
    things: list[tuple[str, str]]
    caption: str


@dataclass(frozen=True)
class SceneCaptions(Dataset):
    """Settings of the dataset."""

    image_size: int = field(64, low=48)  # pixels per side
    batch_size: int = field(32, group="training")
    min_side: float = field(0.24, above=0, high=0.4)  # of a thing's square, as a share of the image's side
    max_side: float = field(0.34, above=0, high=0.4)
    train_examples: int = 16_000
    eval_examples: int = 1000  # of val and of test
    seed: int = field(0, low=0, below=2**63)

    quick_settings = {"image_size": 48, "batch_size": 4, "train_examples": 8, "eval_examples": 4}  # noqa: RUF012

    def __post_init__(self) -> None:
        validate(self, "data.")
        if self.min_side > self.max_side:
            raise BadInput(f"data.min_side={self.min_side} must be at most data.max_side={self.max_side}")

    def title(self) -> str:
        return "captions of composed scenes"

    @property
    def preprocess(self) -> Preprocess:
        """How pictures are shown to a model: whole, as a square."""
        shown: dict[str, Any] = {"mean": list(MEAN), "std": list(STD), "resample": "bilinear", "crop_mode": "squash"}
        return from_dict(Preprocess, {**shown, "size": (self.image_size,) * 2})

    def load_encoder(self) -> None:
        """Return no network: batches have pixels."""

    def build_tokenizer(self) -> Tokenizer:
        """Build the vocabulary of all captions."""
        from regard.tokens.word_tokenizer import build_vocabulary

        return build_vocabulary([[*["a", "on", "the", "and"], *PLACES, *COLOURS, *THINGS]], 10**6, 1, lower=True)

    def load(self, split: str, tokenizer: Tokenizer) -> CaptionSplit:
        part = self.split(split)
        composer = CaptionComposer(self, part)
        scenes = [composer[i] for i in range(self.train_examples if part == "train" else self.eval_examples)]
        pictures = ScenePictures(torch.from_numpy(np.stack([scene.pixels for scene in scenes])))
        captions = [[scene.caption] for scene in scenes]
        return CaptionSplit(pictures, captions, tokenizer, self.batch_size, max_length=8 * MAX_THINGS, flip=False)


class ScenePictures:
    """The pictures of one split, in memory."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def __call__(self, numbers: Int[Tensor, " B"], flipped: Bool[Tensor, " B"]) -> Tensor:
        return self.pixels[numbers]

    def contents(self) -> Iterable[np.ndarray]:
        yield self.pixels.numpy()


class CaptionComposer:
    """Composes the scenes of one split."""

    def __init__(self, settings: SceneCaptions, part: str) -> None:
        self.settings, self.cutouts = settings, load_things(part)
        digest = blake2b(f"{settings.seed}/{part}/captions".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")

    def __getitem__(self, i: int) -> CaptionedScene:
        rng, side = np.random.default_rng((self.key, i)), self.settings.image_size
        sizes = self.settings.min_side, self.settings.max_side
        many = 1 + int(rng.integers(MAX_THINGS))
        things = [(_pick([*THINGS], rng), _pick(COLOURS, rng)) for _ in range(many)]
        while True:
            if (drawn := draw_things(things, self.cutouts, side, sizes, rng)) is None:
                continue
            rows, columns = drawn.middles().T
            order = np.argsort(columns)
            gaps = [*np.diff(columns[order]), *np.abs(rows - drawn.horizon)]
            if min(gaps) >= MIN_GAP * side:
                break
        named = [things[n] for n in order]
        caption = describe(named, [PLACES[int(rows[n] > drawn.horizon)] for n in order])
        return CaptionedScene(drawn.pixels, drawn.masks[order], named, caption)


def describe(things: list[tuple[str, str]], places: list[str]) -> str:
    """Return the caption of things, name and colour, and the place of each, from left to right."""
    return " and ".join(
        f"a {colour} {name} on the {place}" for (name, colour), place in zip(things, places, strict=True)
    )


def _pick(values: Any, rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]
