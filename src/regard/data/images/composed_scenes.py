"""Composed scenes: clothes, digits or emoji pasted over a textured wall and floor, made from a seed.

    Scenes()                                   Fashion-MNIST's ten kinds of clothes
    Scenes(objects=("mnist",))                 written digits
    Scenes(objects=("digits",))                printed digits, in the fonts that matplotlib has
    Scenes(objects=("fashion_mnist", "emoji")) both; of each of the ten emoji there is one picture (emoji.png)

Everything is known exactly: which pixels of an object can be seen (masks), the box around them, the class of every
pixel, and what stands in front of what: `depth` is a distance for every object, the wall and the floor stand behind.
Objects are things, in the order in which they were pasted: the last is in front. Wall (above the horizon) and floor are
stuff; annotations="panoptic" lists them too, one segment each, after the objects; "boxes" leaves out masks, class map
and depth, which a detector does not need.

A scene is computed from (seed, split, row) when it is asked for, or with `store` once for all runs (data.stored_rows),
whatever the annotations. The cut-outs of the training split come from training
images only; those of val and test from images that are never trained on. Of every object at least `min_visible` of its
pixels can be seen: a later object that would hide more is placed elsewhere, or left out after a few trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from regard.core.config import field
from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.scene_batch import Scene, mask_boxes, object_areas, take_objects
from regard.data.images.scene_dataset import SceneDataset
from regard.data.stored_rows import stored_rows

OBJECTS = ("fashion_mnist", "mnist", "digits", "emoji")
STUFF = ("wall", "floor")
EMOJI = ("apple", "banana", "ball", "cat", "car", "flower", "guitar", "house", "key", "star")  # as in emoji.png
DIGITS = tuple("0123456789")
DIGIT_FONTS = {  # files of matplotlib; val and test have faces that are never trained on
    "train": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSansMono", "DejaVuSansMono-Bold",
              "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "cmr10"),
    "val": ("DejaVuSans-BoldOblique", "STIXGeneralBol"),
    "test": ("DejaVuSerif-BoldItalic", "cmb10"),
}  # fmt: skip
OPAQUE = 8  # grey value above which a pixel of Fashion-MNIST or MNIST belongs to the object
TRIALS = 8  # places tried for an object
MAX_DEPTH = 5.0  # of wall and floor
NOTHING = 255  # in the classes of a composition


@dataclass(frozen=True)
class Scenes(SceneDataset):
    """Settings of the dataset."""

    image_size: int = field(128, low=32)  # pixels per side
    batch_size: int = 16
    objects: tuple[str, ...] = ("fashion_mnist",)  # of fashion_mnist, mnist, digits, emoji
    annotations: Literal["instances", "panoptic", "boxes"] = "instances"  # panoptic: wall and floor too; boxes: no maps
    max_objects: int = field(8, low=1, high=200)  # of a scene; at least one
    min_side: float = field(0.16, above=0, high=1)  # of an object's square, as a share of the image's side
    max_side: float = field(0.45, above=0, high=1)
    min_visible: float = field(0.4, low=0, high=1)  # share of an object's pixels
    train_examples: int = 20_000
    eval_examples: int = 500  # of val and of test
    seed: int = field(0, low=0, below=2**63)
    store: bool = field(False, help="compose training scenes first, on all cores, and keep them in the cache folder")

    quick_settings = {  # noqa: RUF012
        "store": False,
        "image_size": 48,
        "batch_size": 2,
        "max_objects": 3,
        "train_examples": 8,
        "eval_examples": 4,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.objects)) < len(self.objects):
            raise BadInput(f"data.objects must name each kind of object once, got {', '.join(self.objects)}")
        for name in self.objects:
            if name not in OBJECTS:
                raise UnknownName(f"data.objects has an unknown '{name}'; {did_you_mean(name, OBJECTS)}")
        if {"mnist", "digits"} <= set(self.objects):
            raise BadInput("data.objects has mnist and digits, which have the same ten classes; choose one")
        if self.min_side > self.max_side:
            raise BadInput(f"data.min_side={self.min_side} must be at most data.max_side={self.max_side}")

    def title(self) -> str:
        return f"scenes of {' and '.join(self.objects)}"

    def labels(self) -> list[str]:
        return [*self.things(), *STUFF]

    def things(self) -> list[str]:
        return [label for name in self.objects for label in _labels(name)]

    def source(self, part: str) -> SceneComposer:
        return SceneComposer(self, part)


class Composition(NamedTuple):
    """A scene before it is annotated, as arrays whose shapes the settings determine."""

    pixels: np.ndarray  # uint8, 3 Y X
    owner: np.ndarray  # uint8, Y X: the number of the object in front, from 1; 0: wall or floor
    classes: np.ndarray  # uint8, max_objects: of the objects, then NOTHING
    distance: np.ndarray  # float32, max_objects
    horizon: np.ndarray  # int16: the row at which the floor begins


class SceneComposer:
    """The scenes of one split, composed when they are asked for, or stored."""

    def __init__(self, settings: Scenes, part: str) -> None:
        self.settings, self.part = settings, part
        self.things = settings.things()
        self.cutouts = [load_cutouts(name, part) for name in settings.objects]
        digest = blake2b(f"{settings.seed}/{part}/scenes".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")
        self.stored: list[np.ndarray] | None = None
        if settings.store and part == "train":
            own = replace(settings, store=False, annotations="instances", batch_size=1, limit=None)
            self.stored = stored_rows("scenes", len(self), compose_scenes, own, part)

    def __len__(self) -> int:
        return self.settings.train_examples if self.part == "train" else self.settings.eval_examples

    def __getitem__(self, i: int) -> Scene:
        found = self.compose(i) if self.stored is None else Composition(*(array[i] for array in self.stored))
        return self._annotate(found)

    def compose(self, i: int) -> Composition:
        """Compose scene i."""
        rng, side = np.random.default_rng((self.key, i)), self.settings.image_size
        canvas, horizon = make_background(rng, side)
        owner, total = np.zeros((side, side), np.uint8), np.zeros(0)
        classes: list[int] = []
        for _ in range(rng.integers(1, self.settings.max_objects + 1)):
            cut, c = self._cutout(rng)
            for _ in range(TRIALS):
                alpha = place_cutout(cut, side, rng)
                mask, pixels = alpha[3] >= 0.5, (cut[..., 3] >= 0.5).sum()
                visible = np.bincount(owner[~mask], minlength=len(classes) + 1)[1:]
                seen = (visible >= self.settings.min_visible * total).all()
                if mask.sum() >= max(1, self.settings.min_visible * pixels) and seen:
                    canvas += alpha[3] * (alpha[:3] - canvas)
                    classes, total = [*classes, c], np.append(total, pixels)
                    owner[mask] = len(classes)
                    break
        most, n = self.settings.max_objects, len(classes)
        far = -np.sort(-rng.uniform(1, MAX_DEPTH - 1, n))  # the last object stands in front
        return Composition(
            canvas.clip(0, 255).round().astype(np.uint8),
            owner,
            np.array([*classes, *[NOTHING] * (most - n)], np.uint8),
            np.array([*far, *[0] * (most - n)], np.float32),
            np.array(horizon, np.int16),
        )

    def _annotate(self, found: Composition) -> Scene:
        """Return the scene with all that is known about it."""
        classes = found.classes[found.classes != NOTHING].astype(np.int64)
        n, ground = len(classes), found.owner == 0
        below = np.arange(len(ground))[:, None] >= found.horizon
        stuff = np.stack([ground & ~below, ground & below])
        present = stuff.any(axis=(1, 2))
        masks = np.concatenate([found.owner == np.arange(1, n + 1)[:, None, None], stuff[present]])
        classes = np.concatenate([classes, len(self.things) + np.flatnonzero(present)])
        distance = np.concatenate([found.distance[:n], np.full(present.sum(), MAX_DEPTH, np.float32)])
        segment = masks.argmax(0)  # every pixel has exactly one
        scene = Scene(
            np.array(found.pixels),
            classes,
            mask_boxes(masks),
            np.zeros(len(classes), bool),
            masks,
            classes[segment].astype(np.uint8),
            distance[segment],
        )
        if self.settings.annotations == "panoptic":
            return scene
        scene = take_objects(scene, classes < len(self.things))
        if self.settings.annotations == "boxes":
            scene = replace(scene, areas=object_areas(scene), masks=None, labels=None, depth=None)
        return scene

    def contents(self) -> Iterable[np.ndarray]:
        yield np.frombuffer(f"{self.part} {replace(self.settings, store=False)}".encode(), np.uint8)

    def _cutout(self, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return a random object as it will be pasted, RGBA (0 to 255, alpha 0 to 1), and its class."""
        c = int(rng.integers(len(self.things)))
        kind, within = next(
            (kind, c - before)
            for kind, before in _offsets([len(each) for each in self.cutouts])
            if c - before < len(self.cutouts[kind])
        )
        choices = self.cutouts[kind][within]
        picture = choices[int(rng.integers(len(choices)))]
        if self.settings.objects[kind] != "emoji":
            picture = paint(picture, random_colour(rng, (0.1, 0.9), (0.65, 1.0)))
        if self.settings.objects[kind] == "fashion_mnist" and rng.random() < 0.5:
            picture = picture[:, ::-1]
        low, high = np.log([self.settings.min_side, self.settings.max_side])
        side = max(4, round(self.settings.image_size * float(np.exp(rng.uniform(low, high)))))
        return turn_cutout(picture, side, float(rng.uniform(-15, 15))), c


def compose_scenes(settings: Scenes, part: str) -> Callable[[int], Composition]:
    """Return what composes the scenes of a split, by number."""
    return SceneComposer(settings, part).compose


def turn_cutout(picture: np.ndarray, side: int, degrees: float) -> np.ndarray:
    """Return an RGBA picture resized to a square and turned, as it is pasted: Y X 4, 0 to 255, alpha 0 to 1."""
    from PIL import Image

    square = Image.fromarray(np.ascontiguousarray(picture)).resize((side, side), Image.Resampling.BILINEAR)
    cut = np.asarray(square.rotate(degrees, Image.Resampling.BILINEAR, expand=True))
    return cut * np.array([1, 1, 1, 1 / 255], np.float32)


def _labels(name: str) -> list[str]:
    """Return the classes of a kind of object."""
    return list({"emoji": EMOJI, "digits": DIGITS}.get(name) or ImageDataset(name).labels())


def place_cutout(cut: np.ndarray, side: int, rng: np.random.Generator) -> np.ndarray:
    """Return an object at a random place of the image, 4 Y X; its middle lies inside, its edges may not."""
    rows, columns = cut.shape[:2]
    top, left = (int(rng.integers(side + 1)) - n // 2 for n in (rows, columns))
    found = np.zeros((4, side, side), np.float32)
    y, x = slice(max(0, top), min(side, top + rows)), slice(max(0, left), min(side, left + columns))
    found[:, y, x] = cut[y.start - top : y.stop - top, x.start - left : x.stop - left].transpose(2, 0, 1)
    return found


def paint(grey: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return a grey image in a colour (RGB from 0 to 255), RGBA; transparent where the object is not."""
    shade = 0.25 + 0.75 / 255 * grey[..., None]
    return np.concatenate([shade * colour, 255.0 * (grey > OPAQUE)[..., None]], -1).astype(np.uint8)


def make_background(rng: np.random.Generator, side: int) -> tuple[np.ndarray, int]:
    """Return a textured wall and floor, 3 Y X, and the row at which the floor begins."""
    horizon = int(rng.uniform(0.35, 0.75) * side)
    wall, floor = (_texture(rng, side, kind + int(rng.integers(2))) for kind in (0, 2))
    below = np.arange(side)[:, None] >= horizon
    return np.where(below, floor, wall) + 4 * rng.standard_normal((side, side), np.float32), horizon


def _texture(rng: np.random.Generator, side: int, kind: int) -> np.ndarray:
    """Return a texture 3 Y X between two muted colours: clouds or wallpaper for walls, tiles or boards for floors."""
    one, two = (random_colour(rng, (0.0, 0.45), (0.2, 0.75))[:, None, None] for _ in range(2))
    x = np.arange(side, dtype=np.float32) / side
    y = x[:, None]
    period, phase = np.float32(rng.uniform(0.06, 0.2)), np.float32(rng.uniform(0, 1))
    if kind == 0:
        mix = _clouds(rng, side)
    elif kind == 1:
        mix = np.broadcast_to(0.5 + 0.5 * np.sin(2 * np.pi * (x / period + phase)), (side, side))
    elif kind == 2:
        mix = (np.floor(x / period + phase) + np.floor(y / period)) % 2
    else:
        mix = 0.5 * _clouds(rng, side) + 0.5 * (np.floor(y / period) % 2)
    return one + mix * (two - one)


def _clouds(rng: np.random.Generator, side: int) -> np.ndarray:
    """Return smooth noise Y X, 0 to 1: random grids of 3, 6 and 12 cells, enlarged and added."""
    from PIL import Image

    total = np.zeros((side, side), np.float32)
    for cells in (3, 6, 12):
        grid = Image.fromarray(rng.random((cells, cells)).astype(np.float32))
        total += np.asarray(grid.resize((side, side), Image.Resampling.BICUBIC)) / cells
    low, high = total.min(), total.max()
    return (total - low) / max(high - low, 1e-6)


def random_colour(rng: np.random.Generator, saturation: tuple[float, float], value: tuple[float, float]) -> np.ndarray:
    """Return a random colour of any hue, RGB from 0 to 255."""
    from colorsys import hsv_to_rgb

    return 255 * np.array(hsv_to_rgb(rng.random(), rng.uniform(*saturation), rng.uniform(*value)), np.float32)


def _offsets(sizes: list[int]) -> Iterable[tuple[int, int]]:
    """Yield (i, sum of the sizes before i)."""
    before = 0
    for i, size in enumerate(sizes):
        yield i, before
        before += size


@lru_cache(maxsize=8)
def load_cutouts(name: str, part: str) -> list[np.ndarray]:
    """Return the images of every class: grey N Y X, or RGBA N Y X 4 for emoji."""
    if name == "emoji":
        return [picture[None] for picture in _emoji()]
    if name == "digits":
        return [np.stack([_draw_digit(digit, font) for font in DIGIT_FONTS[part]]) for digit in DIGITS]
    split = ImageDataset(name).load(part)
    pixels, labels = split.pixels[:, 0].numpy(), split.labels.numpy()
    return [pixels[labels == c] for c in range(len(split.settings.labels()))]


def _draw_digit(digit: str, font: str) -> np.ndarray:
    """Return a digit in a font of matplotlib, bright on black, 28 x 28 with a margin, in its own proportions."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    drawn = Image.new("L", (140, 140))
    ImageDraw.Draw(drawn).text((30, 10), digit, 255, ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{font}.ttf", 96))
    cut = drawn.crop(drawn.getbbox())
    cut = cut.resize((max(1, round(24 * cut.width / cut.height)), 24), Image.Resampling.LANCZOS)
    square = Image.new("L", (28, 28))
    square.paste(cut, ((28 - cut.width) // 2, 2))
    return np.asarray(square)


def _emoji() -> list[np.ndarray]:
    """Return the pictures of the emoji, each RGBA 64 x 64."""
    from PIL import Image

    with Image.open(Path(__file__).parent / "emoji.png") as sheet:
        return np.split(np.asarray(sheet), len(EMOJI), axis=1)
