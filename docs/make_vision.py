"""Draws the pictures of docs/how/vision.md into docs/assets/, with models trained for a few minutes on nine photos.

    python docs/make_vision.py crops FOLDER           pieces of the photos, one folder for each
    python docs/make_vision.py draw VIT SWIN MVIT     the pictures, with three models trained on them

The photos are those of the data home (photos/, see its README for who made them). The models learn which photo a piece
was cut out of, and nothing else: `commands` says how they are trained.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from regard import cli
from regard.data import home

ASSETS = Path(__file__).resolve().parent / "assets"
PHOTOS = {
    "astronaut": "astronaut",
    "cat": "chelsea",
    "coffee": "coffee",
    "coins": "coins",
    "flower": "flower",
    "motorcycle": "motorcycle_left",
    "photographer": "camera",
    "rocket": "rocket",
    "temple": "china",
}
EACH, SIDE = 90, 96  # pieces of a photo, and their pixels


def crops(folder: Path) -> None:
    """Pieces of every photo: from a quarter of its shorter side to all of it."""
    dice = np.random.default_rng(0)
    for label, name in PHOTOS.items():
        (folder / label).mkdir(parents=True)
        photo = Image.open(home.folder("photos") / f"{name}.jpg").convert("RGB")
        for n in range(EACH):
            side = int(min(photo.size) * dice.uniform(0.25, 1.0))
            left, top = (int(dice.integers(0, whole - side + 1)) for whole in photo.size)
            piece = photo.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            piece.save(folder / label / f"{n:03}.jpg", quality=90)


def collage(file: Path) -> Path:
    """The cat at the left, the coffee at the right."""
    halves = []
    for name, box in (("chelsea", (110, 0, 260, 300)), ("coffee", (190, 60, 360, 400))):
        photo = Image.open(home.folder("photos") / f"{name}.jpg").convert("RGB")
        halves.append(photo.crop(box).resize((224, 448), Image.Resampling.BICUBIC))
    both = Image.new("RGB", (448, 448))
    for n, half in enumerate(halves):
        both.paste(half, (224 * n, 0))
    both.save(file)
    return file


def draw(vit: str, swin: str, mvit: str) -> None:
    """The pictures, through the command line."""
    both = str(collage(ASSETS / "vision-both.png"))
    cat = str(home.folder("photos") / "chelsea.jpg")
    for name, words in {
        "vision-class": [cat, "--model", vit],
        "vision-heads": [cat, "--model", vit, "--view", "heads"],
        "vision-layers": [cat, "--model", swin, "--view", "layers", "--query", "30,45"],
        "vision-rollout-vit": [cat, "--model", vit, "--view", "rollout"],
        "vision-rollout-swin": [cat, "--model", swin, "--view", "rollout"],
        "vision-rollout-mvit": [cat, "--model", mvit, "--view", "rollout"],
        "vision-cat": [both, "--model", vit, "--view", "relevance", "--label", "cat"],
        "vision-coffee": [both, "--model", vit, "--view", "relevance", "--label", "coffee"],
    }.items():
        if cli.main(["see", *words, "--output", str(ASSETS / f"{name}.png")]):
            raise SystemExit(1)


def main(words: Sequence[str]) -> int:
    """Make the pieces, or draw."""
    if len(words) == 2 and words[0] == "crops":
        crops(Path(words[1]))
    elif len(words) == 4 and words[0] == "draw":
        draw(*words[1:])
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
