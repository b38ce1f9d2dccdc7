"""Rendered rooms with exact depth: spheres and boxes on a floor between walls, cast ray by ray from a seed.

    ray of a pixel     camera + t · d,  d = ((x - X/2) / f, (Y/2 - y) / f, 1) tilted by the camera's pitch
    depth              the smallest t > 0 that meets a surface: distance along the camera's axis, in metres

Surfaces are matt, with a pattern of two colours each, lit by one lamp with shadows. So shading, perspective, texture
gradients, occlusion and the place on the floor all tell the depth, as in photographs. Depth is that at the pixel's
centre, computed in float64.

A room is computed from (seed, split, row) when it is asked for, or with `store` once for all runs (data.stored_rows).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from regard.core.config import field
from regard.data.images.scene_batch import Scene
from regard.data.images.scene_dataset import SceneDataset
from regard.data.stored_rows import stored_rows

AMBIENT = 0.35  # share of light that comes from everywhere
EPS = 1e-6


@dataclass(frozen=True)
class RenderedDepth(SceneDataset):
    """Settings of the dataset."""

    image_size: tuple[int, int] = (96, 128)  # rows and columns
    batch_size: int = 16
    max_objects: int = 8  # at least one
    train_examples: int = 10_000
    eval_examples: int = 200  # of val and of test
    seed: int = field(0, low=0, below=2**63)
    store: bool = field(False, help="render the training rooms first, on all cores, and keep them in the cache folder")

    quick_settings = {  # noqa: RUF012
        "store": False,
        "image_size": (32, 48),
        "batch_size": 2,
        "max_objects": 3,
        "train_examples": 8,
        "eval_examples": 4,
    }

    def title(self) -> str:
        return "rendered rooms"

    def labels(self) -> list[str]:
        return []

    def source(self, part: str) -> RoomRenderer:
        return RoomRenderer(self, part)


class RoomRenderer:
    """The rooms of one split, rendered when they are asked for, or stored."""

    def __init__(self, settings: RenderedDepth, part: str) -> None:
        self.settings, self.part = settings, part
        digest = blake2b(f"{settings.seed}/{part}/rooms".encode(), digest_size=7).digest()
        self.key = int.from_bytes(digest, "big")
        self.stored: list[np.ndarray] | None = None
        if settings.store and part == "train":
            own = replace(settings, store=False, batch_size=1, limit=None)
            self.stored = stored_rows("rooms", len(self), room_renderer, own, part)

    def __len__(self) -> int:
        return self.settings.train_examples if self.part == "train" else self.settings.eval_examples

    def __getitem__(self, i: int) -> Scene:
        if self.stored is not None:
            return Scene(np.array(self.stored[0][i]), depth=np.array(self.stored[1][i]))
        pixels, depth = self.render(i)
        return Scene(pixels, depth=depth)

    def render(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pixels and the depth of room i."""
        rng = np.random.default_rng((self.key, i))
        room = random_room(rng, self.settings.max_objects)
        pixels, depth = render(room, self.settings.image_size)
        noisy = 255 * pixels + 2 * rng.standard_normal(pixels.shape)
        return noisy.clip(0, 255).round().astype(np.uint8), depth.astype(np.float32)

    def contents(self) -> Iterable[np.ndarray]:
        yield np.frombuffer(f"{self.part} {replace(self.settings, store=False)}".encode(), np.uint8)


def room_renderer(settings: RenderedDepth, part: str) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """Return what renders the rooms of a split, by number."""
    return RoomRenderer(settings, part).render


class Pattern(NamedTuple):
    """Two colours (RGB, 0 to 1) and how they alternate in space."""

    colours: np.ndarray  # 2 3
    kind: int  # 0 plain, 1 checks, 2 stripes, 3 clouds
    period: float  # metres
    phase: np.ndarray  # 3

    def at(self, points: np.ndarray) -> np.ndarray:
        """Return the colour at points N 3."""
        cells = points / self.period + self.phase
        if self.kind == 0:
            mix = np.zeros(len(points))
        elif self.kind == 1:
            mix = np.floor(cells + EPS).sum(1) % 2
        elif self.kind == 2:
            mix = np.floor(cells[:, 0] + cells[:, 2]) % 2
        else:
            waves = np.sin(2 * cells @ np.array([[1.0, 2.1, -1.3], [0.7, -1.1, 1.9], [1.3, 0.6, 2.3]]))
            mix = 0.5 + waves.sum(1) / 6
        low, high = self.colours
        return low + mix[:, None] * (high - low)


class Plane(NamedTuple):
    """A wall, floor or ceiling: all points with normal · p = offset; the room is on the normal's side."""

    normal: np.ndarray
    offset: float
    pattern: Pattern

    def hit(self, origins: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return t at which rays N 3 meet the surface (infinite where they do not) and the normals N 3 there."""
        along = rays @ self.normal
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (self.offset - origins @ self.normal) / along
        return np.where((along < 0) & (t > EPS), t, np.inf), np.broadcast_to(self.normal, rays.shape)


class Sphere(NamedTuple):
    """A ball."""

    centre: np.ndarray
    radius: float
    pattern: Pattern

    def hit(self, origins: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offset = origins - self.centre
        a, b = (rays * rays).sum(1), (rays * offset).sum(1)
        root = b * b - a * ((offset * offset).sum(1) - self.radius**2)
        t = (-b - np.sqrt(np.maximum(root, 0))) / a  # the nearer of two
        t = np.where((root > 0) & (t > EPS), t, np.inf)
        return t, (offset + np.where(np.isfinite(t), t, 0)[:, None] * rays) / self.radius


class Block(NamedTuple):
    """A box turned about the vertical."""

    centre: np.ndarray
    half: np.ndarray  # half of its sides, in its own directions
    turn: float  # radians
    pattern: Pattern

    @property
    def axes(self) -> np.ndarray:
        """Return its own directions, one in each row."""
        c, s = math.cos(self.turn), math.sin(self.turn)
        return np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]])

    def hit(self, origins: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start, way = (origins - self.centre) @ self.axes.T, rays @ self.axes.T
        way = np.where(np.abs(way) < 1e-12, 1e-12, way)
        enter, leave = (-np.sign(way) * self.half - start) / way, (np.sign(way) * self.half - start) / way
        side, t = enter.argmax(1), enter.max(1)
        t = np.where((t <= leave.min(1)) & (t > EPS), t, np.inf)
        return t, -np.sign(np.take_along_axis(way, side[:, None], 1)) * self.axes[side]


Surface = Plane | Sphere | Block


class Room(NamedTuple):
    """Surfaces, a lamp and a camera."""

    surfaces: Sequence[Surface]
    lamp: np.ndarray
    camera: np.ndarray
    pitch: float  # radians, downwards
    field_of_view: float  # radians, across


def render(room: Room, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the picture of a room, 3 Y X from 0 to 1, and its depth Y X in metres."""
    rays = camera_rays(room, size)
    origins = np.broadcast_to(room.camera, rays.shape)
    depth, which, normals = _first_hit(room.surfaces, origins, rays)
    points = origins + depth[:, None] * rays
    to_lamp = room.lamp - points
    # Shadows: rays from the surface to the lamp, which is reached at t = 1; walls never stand between.
    solids = [surface for surface in room.surfaces if not isinstance(surface, Plane)]
    blocked, _, _ = _first_hit(solids, points + 1e-4 * normals, to_lamp)
    facing = (normals * to_lamp).sum(1) / np.linalg.norm(to_lamp, axis=1)
    light = AMBIENT + (1 - AMBIENT) * np.where(blocked < 1, 0, np.maximum(facing, 0))
    colours = np.zeros_like(points)
    for number, surface in enumerate(room.surfaces):
        mine = which == number
        colours[mine] = surface.pattern.at(points[mine])
    return (colours * light[:, None]).T.reshape(3, *size), depth.reshape(size)


def camera_rays(room: Room, size: tuple[int, int]) -> np.ndarray:
    """Return the rays of all pixels, YX 3, of length 1 along the camera's axis."""
    rows, columns = size
    focal = columns / 2 / math.tan(room.field_of_view / 2)
    y, x = np.mgrid[:rows, :columns] + 0.5
    across, up = ((x - columns / 2) / focal).ravel(), ((rows / 2 - y) / focal).ravel()
    c, s = math.cos(room.pitch), math.sin(room.pitch)
    return np.stack([across, c * up - s, s * up + c], 1)


def _first_hit(
    surfaces: Sequence[Surface], origins: np.ndarray, rays: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return t of the first surface on each ray, its number, and its normal there."""
    nearest, which = np.full(len(rays), np.inf), np.zeros(len(rays), int)
    normals = np.zeros_like(rays)
    for number, surface in enumerate(surfaces):
        t, normal = surface.hit(origins, rays)
        closer = t < nearest
        nearest[closer], which[closer], normals[closer] = t[closer], number, normal[closer]
    return nearest, which, normals


def random_room(rng: np.random.Generator, max_objects: int) -> Room:
    """Return a closed room of random size with objects on its floor, in front of the camera."""
    wide, high, far = rng.uniform(1.5, 4), rng.uniform(2.2, 3.5), rng.uniform(3.5, 9)
    walls = [  # floor, ceiling, left, right, back, and the wall behind the camera
        ((0, 1, 0), 0), ((0, -1, 0), -high), ((1, 0, 0), -wide), ((-1, 0, 0), -wide),
        ((0, 0, -1), -far), ((0, 0, 1), -1),
    ]  # fmt: skip
    surfaces: list[Surface] = [Plane(np.array(n, float), float(k), _pattern(rng)) for n, k in walls]
    for _ in range(rng.integers(1, max_objects + 1)):
        z = rng.uniform(1.6, far - 0.4)
        x = rng.uniform(-1, 1) * min(wide - 0.3, 0.7 * z)
        size = rng.uniform(0.15, 0.6)
        if rng.random() < 0.5:
            surfaces.append(Sphere(np.array([x, size + max(0, rng.uniform(-1, 0.8)), z]), size, _pattern(rng)))
        else:
            half = size * rng.uniform(0.5, 1.2, 3)
            turn = rng.uniform(0, math.pi)
            surfaces.append(Block(np.array([x, half[1], z]), half, turn, _pattern(rng)))
    lamp = np.array([rng.uniform(-wide, wide) * 0.8, high - 0.1, rng.uniform(0.2, far - 0.5)])
    camera = np.array([0, rng.uniform(0.9, min(1.8, high - 0.3)), 0])
    return Room(surfaces, lamp, camera, rng.uniform(-0.05, 0.3), math.radians(rng.uniform(50, 80)))


def _pattern(rng: np.random.Generator) -> Pattern:
    return Pattern(rng.uniform(0.1, 1, (2, 3)), int(rng.integers(4)), rng.uniform(0.15, 0.8), rng.random(3))
