"""Folders of examples by class: cat/*.jpg, dog/*.jpg, all for training, or such folders in train/, val/ and test/."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regard.core.errors import BadInput
from regard.data.shuffle import Shuffle

SPLITS = ("train", "val", "test")
_ALIASES = {"val": ("val", "valid", "validation", "dev")}


def split_folders(folder: Path) -> dict[str, Path]:
    """Return the splits of a folder; without train/ all of it is training data."""
    found = {}
    for part in SPLITS:
        names = _ALIASES.get(part, (part,))
        if there := next((folder / name for name in names if (folder / name).is_dir()), None):
            found[part] = there
    return found if "train" in found else {"train": folder}


def class_folders(folder: Path, noun: str = "images") -> list[str]:
    """Return the classes of a split: its subfolders, sorted."""
    found = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise BadInput(f"{folder} has no subfolders; make one folder of {noun} for each class")
    return found


def split_rows(count: int, part: str, val_fraction: float, seed: int = 0) -> np.ndarray:
    """Return which of `count` examples belong to "train", "val" or "all"; the order depends on the seed alone."""
    if part == "all":
        return np.arange(count)
    order = Shuffle(count, seed)(np.arange(count))
    many = max(1, round(val_fraction * count))
    return np.sort(order[:many] if part == "val" else order[many:])
