"""Draw the pictures of docs/how/vision.md into docs/assets/.

    python docs/make_vision_figures.py crops FOLDER     crops of nine photos, one folder for each
    python docs/make_vision_figures.py draw MODEL       draw the figures, with a trained ViT and untrained models

The photos are in the dataset folder (photos/; its README names the authors). The ViT learns which photo a crop is from;
the page has the command.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

import regard
from regard import cli
from regard.data import data_dir
from regard.modalities.image import Preprocess
from regard.tasks.image.image_classification import ImageClassifier

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
CROPS_PER_PHOTO, SIDE = 90, 96  # crops of a photo, and their side in pixels


def crops(folder: Path) -> None:
    """Save crops of every photo: from a quarter of its shorter side to all of it."""
    rng = np.random.default_rng(0)
    for label, name in PHOTOS.items():
        (folder / label).mkdir(parents=True)
        photo = Image.open(data_dir.find_dataset("photos") / f"{name}.jpg").convert("RGB")
        for n in range(CROPS_PER_PHOTO):
            side = int(min(photo.size) * rng.uniform(0.25, 1.0))
            left, top = (int(rng.integers(0, extent - side + 1)) for extent in photo.size)
            piece = photo.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            piece.save(folder / label / f"{n:03}.jpg", quality=90)


def collage(file: Path) -> Path:
    """Save an image with the cat at the left and the coffee at the right."""
    halves = []
    for name, box in (("chelsea", (110, 0, 260, 300)), ("coffee", (190, 60, 360, 400))):
        photo = Image.open(data_dir.find_dataset("photos") / f"{name}.jpg").convert("RGB")
        halves.append(photo.crop(box).resize((224, 448), Image.Resampling.BICUBIC))
    both = Image.new("RGB", (448, 448))
    for n, half in enumerate(halves):
        both.paste(half, (224 * n, 0))
    both.save(file)
    return file


def untrained(name: str, folder: str, **sizes: Any) -> str:
    """Save an untrained classifier of these photos."""
    torch.manual_seed(0)
    model = regard.build(name, num_classes=len(PHOTOS), image_size=SIDE, **sizes)
    regard.save(ImageClassifier(model, list(PHOTOS), Preprocess(SIDE)), folder)
    return folder


def draw(vit: str) -> None:
    """Draw the pictures with the command line."""
    cat = str(data_dir.find_dataset("photos") / "chelsea.jpg")
    with TemporaryDirectory() as temporary:
        both = str(collage(Path(temporary) / "both.png"))
        swin = untrained("swin", f"{temporary}/swin", width=32, heads=(1, 2, 4), layers=(2, 2, 2), window_size=6)
        mvit = untrained("mvit", f"{temporary}/mvit", width=32, layers=(1, 2, 2), kv_stride=4)
        for name, arguments in {
            "class": [cat, "--model", vit],
            "heads": [cat, "--model", vit, "--view", "heads"],
            "rollout-swin": [cat, "--model", swin, "--view", "rollout", "--query", "36,31"],
            "rollout-mvit": [cat, "--model", mvit, "--view", "rollout", "--query", "36,31"],
            "cat": [both, "--model", vit, "--view", "relevance", "--label", "cat"],
            "coffee": [both, "--model", vit, "--view", "relevance", "--label", "coffee"],
        }.items():
            picture = ASSETS / f"vision-{name}.png"
            if cli.main(["see", *arguments, "--output", str(picture)]):
                raise SystemExit(1)


def main(arguments: Sequence[str]) -> int:
    """Make the crops, or draw."""
    if len(arguments) == 2 and arguments[0] == "crops":
        crops(Path(arguments[1]))
    elif len(arguments) == 2 and arguments[0] == "draw":
        draw(arguments[1])
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
