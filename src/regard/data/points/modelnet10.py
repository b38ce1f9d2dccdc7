"""ModelNet10 as points: furniture of ten classes, from grids of 24 x 24 x 24 voxels.

    ModelNet10()      points drawn from the surface voxels of each grid, each somewhere in its voxel

The meshes could not be had, so results here compare with one another, not with published ones on the meshes. At this
resolution several objects have the same grid. A grid that a test object has is left out of training, a grid is trained
on once, and empty grids are left out (one of the 908 test objects too). A tenth of the training grids is validation.

Wu, Song, Khosla, Yu, Zhang, Tang, Xiao: 3D ShapeNets. CVPR 2015. arXiv:1406.5670. For academic research only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from regard.core.config import field
from regard.core.shapes import Tensor
from regard.data.data_dir import cached_by_data_dir, find_dataset
from regard.data.points.point_batch import PointBatch, PointDataset

SIDE = 24


@dataclass(frozen=True)
class ModelNet10(PointDataset):
    """Settings of the dataset."""

    path: str = "modelnet10"
    points: int = 2048  # drawn from each object, once
    batch_size: int = 32
    val_fraction: float = field(0.1, above=0, below=1)
    limit: int | None = None  # objects of a split
    seed: int = field(0, low=0, below=2**31)

    quick_settings = {"points": 32, "batch_size": 8, "limit": 24}  # noqa: RUF012

    def labels(self) -> list[str]:
        return list(_read(self.path)[2])

    def clouds(self, split: str) -> PointBatch:
        train, test, _ = _read(self.path)
        grids, labels = test if split == "test" else train
        rng = np.random.default_rng([self.seed, split == "test"])
        if split != "test":
            order, many = rng.permutation(len(labels)), round(len(labels) * self.val_fraction)
            rows = np.sort(order[:many] if split == "val" else order[many:])
            grids, labels = grids[rows], labels[rows]
        if self.limit is not None:
            rows = np.sort(rng.permutation(len(labels))[: self.limit])
            grids, labels = grids[rows], labels[rows]
        points = np.stack([_surface_points(grid, self.points, rng) for grid in grids])
        return PointBatch(_tensor(points, np.float32), _tensor(labels, np.int64))


def _tensor(values: np.ndarray, dtype: type) -> Tensor:
    return torch.from_numpy(values.astype(dtype))


@cached_by_data_dir(1)
def _read(path: str) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray], tuple[str, ...]]:
    """Return packed grids and labels to train on and to test, without empty and repeated ones, and the classes."""
    with np.load(find_dataset(path) / "modelnet10_vox24.npz") as file:
        train, test = ((file[f"{part}_vox"], file[f"{part}_labels"]) for part in ("train", "test"))
        names = tuple(map(str, file["class_names"]))
    seen = {grid.tobytes() for grid in test[0]}
    rows = []
    for row, grid in enumerate(train[0]):
        if grid.any() and grid.tobytes() not in seen:
            seen.add(grid.tobytes())
            rows.append(row)
    real = test[0].any(1)
    return (train[0][rows], train[1][rows]), (test[0][real], test[1][real]), names


def _surface_points(packed: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return points in voxels that have an empty neighbour, in [-1, 1]."""
    grid = np.pad(np.unpackbits(packed)[: SIDE**3].reshape(SIDE, SIDE, SIDE).astype(bool), 1)
    inner = grid[2:, 1:-1, 1:-1] & grid[:-2, 1:-1, 1:-1] & grid[1:-1, 2:, 1:-1] & grid[1:-1, :-2, 1:-1]
    inner &= grid[1:-1, 1:-1, 2:] & grid[1:-1, 1:-1, :-2]
    surface = np.argwhere(grid[1:-1, 1:-1, 1:-1] & ~inner)
    drawn = surface[rng.integers(len(surface), size=count)]
    return (drawn + rng.random((count, 3))) / (SIDE / 2) - 1
