"""Scenes of shapes on a floor, made from a seed, with the label of every point: floor, sphere, cube, ..., helix.

    PointScenes()     2,000 scenes of 2,048 points to train on, 250 for validation, 250 for test

Two to `max_objects` shapes (data.points.shapes) of different sizes are turned to any orientation and laid on a floor of
their own size, none into another. Points are drawn in proportion to the extent of the surfaces, in random order, and
moved by noise. Which scenes a split has depends on the seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from regard.core.config import field
from regard.data.points.point_batch import PointBatch, PointDataset
from regard.data.points.shapes import SURFACES, rotations

FLOOR = "floor"
TRIALS = 40  # places tried for a shape; without one it is left out
GAP = 1.1  # of two shapes, in the sum of their radii


@dataclass(frozen=True)
class PointScenes(PointDataset):
    """Settings of the dataset."""

    examples: int = 2000  # to train on; an eighth as many to validate and to test
    points: int = 2048  # of each scene
    max_objects: int = field(5, low=2, high=32)
    noise: float = field(0.01, low=0, high=1)  # standard deviation; shapes have radii of 0.5 to 1
    batch_size: int = 16
    seed: int = field(0, low=0, below=2**31)

    quick_settings = {"examples": 24, "points": 64, "batch_size": 4}  # noqa: RUF012

    def title(self) -> str:
        return "composed scenes of shapes"

    def labels(self) -> list[str]:
        return [FLOOR, *SURFACES]

    def clouds(self, split: str) -> PointBatch:
        rng = np.random.default_rng([self.seed, ("train", "val", "test").index(split)])
        count = max(1, self.examples // (1 if split == "train" else 8))
        scenes = [self._compose(rng) for _ in range(count)]
        points, labels = (np.stack(each) for each in zip(*scenes, strict=True))
        return PointBatch(torch.from_numpy(points), torch.from_numpy(labels))

    def _compose(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the points of a scene and their labels."""
        radii = rng.uniform(0.5, 1, int(rng.integers(2, self.max_objects + 1)))
        half = 1.6 * np.sqrt((radii**2).sum())  # of the floor's side
        places = list[tuple[float, float, float]]()  # x, y and radius
        for radius in radii:
            for x, y in rng.uniform(radius - half, half - radius, (TRIALS, 2)):
                if all(np.hypot(x - a, y - b) > GAP * (radius + r) for a, b, r in places):
                    places.append((x, y, radius))
                    break
        areas = np.array([0.25 * 4 * half**2, *(4 * np.pi * r**2 for _, _, r in places)])
        label = np.sort(rng.choice(len(areas), self.points, p=areas / areas.sum()))
        parts = [np.pad(rng.uniform(-half, half, (int((label == 0).sum()), 2)), ((0, 0), (0, 1)))]
        kinds = rng.integers(0, len(SURFACES), len(places))
        for n, (x, y, radius) in enumerate(places):
            parts.append(_lay(list(SURFACES.values())[kinds[n]], int((label == n + 1).sum()), x, y, radius, rng))
        points = np.concatenate(parts) + self.noise * rng.standard_normal((self.points, 3))
        order = rng.permutation(self.points)
        return points[order].astype(np.float32), np.concatenate([[0], kinds + 1])[label][order]


def _lay(surface: object, size: int, x: float, y: float, radius: float, rng: np.random.Generator) -> np.ndarray:
    """Return points of a shape of this radius, turned, whose lowest point is on the floor at x, y."""
    assert callable(surface)
    if not size:
        return np.zeros((0, 3))
    points = surface(1, size, rng)[0] @ rotations(1, rng)[0]
    points = points - (points.min(0) + points.max(0)) / 2
    points = radius * points / max(np.linalg.norm(points, axis=1).max(), 1e-9)
    return points + np.array([x, y, -points[:, 2].min()])
