"""Land or ocean: the mask of the Earth at a quarter of a degree, as labelled places.

    LandMask()      40,000 places to train on, 10,000 for validation, 50,000 for test, all drawn evenly from the sphere

A place has the label of its cell. A cell belongs to one split only, by a seed, so that no test place is in a cell that
was trained on.

The mask: GLOBE (NOAA), from the package global-land-mask, MIT.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from regard.core.config import field
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, TensorBatch, TensorSplit
from regard.data.data_dir import find_dataset

SHARES = {"train": (0.0, 0.5), "val": (0.5, 0.6), "test": (0.6, 1.0)}  # of the cells


@dataclass(frozen=True, eq=False)
class PlaceBatch(TensorBatch):
    """Longitudes and latitudes in degrees, and labels."""

    places: Float[Tensor, "B 2"]
    labels: Int[Tensor, " B"]


@dataclass(frozen=True)
class LandMask(Dataset):
    """Settings of the dataset."""

    path: str = "land_mask"
    examples: int = 40_000  # to train on; a quarter as many to validate, a quarter more to test
    batch_size: int = 1024
    seed: int = field(0, low=0, below=2**31)

    quick_settings = {"examples": 400, "batch_size": 32}  # noqa: RUF012

    def __post_init__(self) -> None:
        validate(self, "data.")

    def labels(self) -> list[str]:
        """Return the names of the classes."""
        return ["ocean", "land"]

    def load(self, split: str) -> TensorSplit[PlaceBatch]:
        split = self.split(split)
        mask = read_mask(find_dataset(self.path))
        parts = np.random.default_rng([self.seed, 0]).random(mask.shape)
        low, high = SHARES[split]
        rng = np.random.default_rng([self.seed, 1 + list(SHARES).index(split)])
        count = {"train": self.examples, "val": self.examples // 4, "test": self.examples * 5 // 4}[split]
        found = np.empty((0, 2))
        while len(found) < count:
            latitude = np.degrees(np.arcsin(rng.uniform(-1, 1, 4 * count)))  # even on the sphere
            drawn = np.stack([rng.uniform(-180, 180, 4 * count), latitude], 1)
            part = parts[cells_of(drawn, mask.shape)]
            found = np.concatenate([found, drawn[(part >= low) & (part < high)]])
        places = found[:count]
        labels = mask[cells_of(places, mask.shape)]
        return TensorSplit(
            PlaceBatch(torch.from_numpy(places).float(), torch.from_numpy(labels).long()), self.batch_size
        )


def cells_of(places: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and column of each place in a grid whose first row is the northernmost, first column 180 west."""
    rows = np.clip(((90 - places[:, 1]) / 180 * shape[0]).astype(int), 0, shape[0] - 1)
    return rows, np.clip(((places[:, 0] + 180) / 360 * shape[1]).astype(int), 0, shape[1] - 1)


@lru_cache(maxsize=1)
def read_mask(folder: Path) -> np.ndarray:
    """Return the mask, rows from north to south, columns from west to east; True is land."""
    with np.load(folder / "land_mask_025deg.npz") as file:
        mask: np.ndarray = file["land"].astype(bool)
    return mask
