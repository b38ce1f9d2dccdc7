"""Shapes made from a seed, as points on their surfaces: sphere, cube, cylinder, cone, torus, pyramid, disc, helix.

    Shapes()          8,000 clouds of 512 points to train on, 1,000 for validation, 1,000 for test

Points are drawn evenly from the surface. Each shape has proportions of its own, is stretched along its axes, loses a
part (a scanner does not see everything), is turned to any orientation, and its points are moved by noise. Which shapes
a split has depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from regard.core.config import field
from regard.data.points.point_batch import PointBatch, PointDataset

Rng = np.random.Generator


@dataclass(frozen=True)
class Shapes(PointDataset):
    """Settings of the dataset."""

    examples: int = 8000  # to train on; an eighth as many to validate and to test
    points: int = 512  # of each cloud
    noise: float = field(0.03, low=0, high=1)  # largest standard deviation of the noise, of the shape's radius
    missing: float = field(0.3, low=0, below=0.9)  # largest share of a shape that is cut off by a plane
    batch_size: int = 32
    seed: int = field(0, low=0, below=2**31)

    quick_settings = {"examples": 64, "points": 32, "batch_size": 8}  # noqa: RUF012

    def title(self) -> str:
        return "composed shapes"

    def labels(self) -> list[str]:
        return list(SURFACES)

    def clouds(self, split: str) -> PointBatch:
        rng = np.random.default_rng([self.seed, ("train", "val", "test").index(split)])
        count = max(1, self.examples // (1 if split == "train" else 8))
        labels = rng.permutation(np.arange(count) % len(SURFACES))
        points = np.empty((count, self.points, 3), dtype=np.float32)
        for label, surface in enumerate(SURFACES.values()):
            rows = np.flatnonzero(labels == label)
            points[rows] = self._compose(surface, len(rows), rng)
        return PointBatch(torch.from_numpy(points), torch.from_numpy(labels))

    def _compose(self, surface: Callable[[int, int, Rng], np.ndarray], count: int, rng: Rng) -> np.ndarray:
        points = surface(count, self.points, rng)
        points = points * np.exp(rng.normal(0, 0.12, (count, 1, 3)))
        points = points @ rotations(count, rng)
        points = _cut(points, rng.uniform(0, self.missing, count) * (rng.random(count) < 0.5), rng)
        radius = np.linalg.norm(points - points.mean(1, keepdims=True), axis=2).max(1)
        sigma = radius * rng.uniform(0, self.noise, count)
        return points + sigma[:, None, None] * rng.standard_normal(points.shape)


def rotations(count: int, rng: Rng) -> np.ndarray:
    """Return rotation matrices, all orientations equally likely: of unit quaternions."""
    w, x, y, z = (q := rng.standard_normal((4, count))) / np.linalg.norm(q, axis=0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)


def _cut(points: np.ndarray, share: np.ndarray, rng: Rng) -> np.ndarray:
    """Cut a share of every cloud off by a plane (points lie in all directions); what remains is drawn again."""
    count, size = points.shape[:2]
    order = points[..., 0].argsort(1)  # the cloud has been turned at random, so any direction will do
    remaining = np.maximum(1, np.round(size * (1 - share))).astype(int)
    drawn = (rng.random((count, size)) * remaining[:, None]).astype(int)
    chosen = np.where((share > 0)[:, None], order[np.arange(count)[:, None], drawn], np.arange(size))
    return points[np.arange(count)[:, None], chosen]


# -- surfaces: `count` clouds of `size` points, drawn evenly -----------------------------------------------------------


def _sphere(count: int, size: int, rng: Rng) -> np.ndarray:
    points = rng.standard_normal((count, size, 3))
    return points / np.linalg.norm(points, axis=2, keepdims=True)


def _cube(count: int, size: int, rng: Rng) -> np.ndarray:
    points = rng.uniform(-1, 1, (count, size, 3))
    axis, side = rng.integers(0, 3, (count, size, 1)), rng.choice([-1.0, 1.0], (count, size, 1))
    return np.where(np.arange(3) == axis, side, points)


def _disc_points(count: int, size: int, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    radius, angle = np.sqrt(rng.random((count, size))), rng.uniform(0, 2 * np.pi, (count, size))
    return radius * np.cos(angle), radius * np.sin(angle)


def _cylinder(count: int, size: int, rng: Rng) -> np.ndarray:
    height = rng.uniform(1.2, 4, (count, 1))
    angle, level = rng.uniform(0, 2 * np.pi, (count, size)), rng.uniform(-0.5, 0.5, (count, size)) * height
    is_cap = rng.random((count, size)) < 1 / (1 + height)  # two caps of π, and 2 π height
    x, y = _disc_points(count, size, rng)
    cap = height / 2 * rng.choice([-1.0, 1.0], (count, size))
    return _stack(np.where(is_cap, x, np.cos(angle)), np.where(is_cap, y, np.sin(angle)), np.where(is_cap, cap, level))


def _cone(count: int, size: int, rng: Rng) -> np.ndarray:
    height = rng.uniform(1.2, 3, (count, 1))
    x, y = _disc_points(count, size, rng)  # the side of a cone is a disc lifted at its centre
    is_base = rng.random((count, size)) < 1 / (1 + np.sqrt(1 + height**2))
    return _stack(x, y, np.where(is_base, 0, height * (1 - np.hypot(x, y))))


def _torus(count: int, size: int, rng: Rng) -> np.ndarray:
    thick, around = rng.uniform(0.15, 0.45, (count, 1)), rng.uniform(0, 2 * np.pi, (count, size))
    across = rng.uniform(0, 2 * np.pi, (8, count, size))  # accepted in proportion to the distance from the axis
    accepted = rng.random(across.shape) * (1 + thick) < 1 + thick * np.cos(across)
    across = np.take_along_axis(across, accepted.argmax(0)[None], 0)[0]
    radius = 1 + thick * np.cos(across)
    return _stack(radius * np.cos(around), radius * np.sin(around), thick * np.sin(across))


def _pyramid(count: int, size: int, rng: Rng) -> np.ndarray:
    height = rng.uniform(1.2, 3, (count, 1))
    x, y = rng.uniform(-1, 1, (2, count, size))  # the sides are a square lifted at its centre
    is_base = rng.random((count, size)) < 1 / (1 + np.sqrt(1 + height**2))
    return _stack(x, y, np.where(is_base, 0, height * (1 - np.maximum(np.abs(x), np.abs(y)))))


def _disc(count: int, size: int, rng: Rng) -> np.ndarray:
    x, y = _disc_points(count, size, rng)
    return _stack(x, y, rng.uniform(-0.02, 0.02, x.shape))


def _helix(count: int, size: int, rng: Rng) -> np.ndarray:
    turns, pitch = rng.uniform(1.5, 4, (count, 1)), rng.uniform(0.6, 1.2, (count, 1))
    along, thick = rng.uniform(-0.5, 0.5, (count, size)) * turns, rng.uniform(0.05, 0.15, (count, 1))
    angle, around = 2 * np.pi * along, rng.uniform(0, 2 * np.pi, (count, size))
    radius = 1 + thick * np.cos(around)
    return _stack(radius * np.cos(angle), radius * np.sin(angle), pitch * along + thick * np.sin(around))


def _stack(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.stack([x, y, z], 2)


SURFACES: dict[str, Callable[[int, int, Rng], np.ndarray]] = {
    "sphere": _sphere,
    "cube": _cube,
    "cylinder": _cylinder,
    "cone": _cone,
    "torus": _torus,
    "pyramid": _pyramid,
    "disc": _disc,
    "helix": _helix,
}
