"""PointCloud: points in space handed in, and `PointPreprocess`, the way from them to a model's numbers.

.ply, .off, .obj (vertices), .npy, .xyz, an array or a tensor N 3, or a JSON list of points. Points that repeat another
exactly are dropped. Coordinates that are not finite, an empty cloud and points that all lie in one place are refused.
`PointPreprocess` is one value, saved with the model and shared by training, prediction and the explorer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.modalities.base import NO_LIMITS, NUMBER, STRING, Input, Limits, Source, array_schema, file_sources
from regard.modalities.decode_points import SUFFIXES, decode_points
from regard.modalities.image import decode_base64


@dataclass(frozen=True, eq=False)
class PointCloud(Input):
    """Points in space, each once, in the order in which they were given; `given`: which of them every given row is."""

    points: Float[Tensor, "N 3"]
    given: Int[Tensor, " M"]

    kind = "points"
    units = "points"
    media_types = ("model/", "application/octet-stream")

    @classmethod
    def read(cls, source: Any, limits: Limits = NO_LIMITS) -> PointCloud:
        """Return the cloud of a path, the bytes of a file, an array, a tensor or a list of points."""
        if isinstance(source, PointCloud):
            _check_count(len(source.points), limits)
            return source
        if isinstance(source, (str, Path, bytes)):
            return cls(*_distinct(decode_points(source, limits.points)))
        if isinstance(source, (list, tuple)):
            _check_count(len(source), limits)
            source = _from_rows(source)
        if not isinstance(source, (np.ndarray, Tensor)):
            wanted = "a path, the bytes of a file, an array or a tensor N 3, or a list of points"
            raise BadInput(f"Expected a point cloud ({wanted}), got {type(source).__name__}.")
        array = source.detach().cpu().double().numpy() if isinstance(source, Tensor) else source
        if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "fiu":
            raise BadInput(f"A point cloud must be numbers of shape N x 3, got shape {tuple(array.shape)}.")
        _check_count(len(array), limits)
        return cls(*_distinct(array.astype(np.float64)))

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        low, high = self.points.amin(0).tolist(), self.points.amax(0).tolist()
        sides = (f"{axis} {a:.4g} to {b:.4g}" for axis, a, b in zip("xyz", low, high, strict=True))
        return f"{len(self.points):,} points: {', '.join(sides)}"

    def to_json(self) -> list[list[float]]:
        """Return the points as a request takes them."""
        found: list[list[float]] = self.points.tolist()
        return found

    @classmethod
    def is_single(cls, given: Any) -> bool:
        if isinstance(given, (list, tuple)):  # a list of points, or of clouds
            first = given[0] if given else None
            return isinstance(first, (list, tuple)) and bool(first) and isinstance(first[0], (int, float))
        return isinstance(given, (str, Path, bytes, np.ndarray, Tensor, PointCloud))

    @classmethod
    def sources(cls, arguments: Sequence[str]) -> Iterator[Source]:
        return file_sources(arguments, SUFFIXES, "point clouds")

    @classmethod
    def from_json(cls, value: Any, limits: Limits = NO_LIMITS) -> PointCloud:
        """Return the cloud of a list of points, of a base64 string, of the bytes of an upload, or one read before."""
        return cls.read(decode_base64(value) if isinstance(value, str) else value, limits)

    @classmethod
    def size(cls, value: PointCloud) -> float:
        return len(value.points)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        points = array_schema(array_schema(NUMBER, minItems=3, maxItems=3), minItems=1)
        file = {**STRING, "contentEncoding": "base64", "description": "the bytes of a .ply, .off, .obj, .npy or .xyz"}
        return {"anyOf": [points, file]}


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.points:
        raise BadInput(f"The point cloud has {count:,} points; at most {limits.points:,} are allowed.")


def _from_rows(rows: Sequence[Any]) -> np.ndarray:
    """Return the array of a list of points."""
    for row in rows:
        good = isinstance(row, (list, tuple)) and len(row) == 3
        if not good or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in row):
            raise BadInput(f"Every point must be three numbers, got {row!r:.60}.")
    try:
        return np.array(rows, dtype=np.float64).reshape(-1, 3)
    except OverflowError:
        raise BadInput("A coordinate is too large.") from None


def _distinct(points: np.ndarray) -> tuple[Float[Tensor, "N 3"], Int[Tensor, " M"]]:
    """Return the points as float32 around their own middle if that is far away, each once, and which of them every row
    is; refuse what is no cloud."""
    if not len(points):
        raise BadInput("The point cloud has no points.")
    if not np.isfinite(points).all() or np.abs(points).max() > 1e30:
        where = int((~np.isfinite(points) | (np.abs(points) > 1e30)).any(1).argmax())
        raise BadInput(f"Point {where + 1:,} has a coordinate that is not finite, or above 1e30.")
    middle, extent = (points.min(0) + points.max(0)) / 2, np.ptp(points, axis=0).max()
    if extent and np.abs(middle).max() > 1e3 * extent:  # such as map coordinates, whose differences float32 would lose
        points = points - middle
    _, first, row = np.unique(points.astype(np.float32), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # `unique` sorts by coordinates; here points stay in the order given
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return torch.from_numpy(points[first[order]].astype(np.float32)), torch.from_numpy(rank[row.reshape(-1)])


@dataclass(frozen=True)
class PointPreprocess:
    """How a model is shown a point cloud: at most `max_points` of it, around its mean, the farthest at distance 1."""

    max_points: int = field(1024, low=1)  # of a larger cloud, so many are drawn, by a fixed seed

    def __post_init__(self) -> None:
        validate(self)

    def __call__(self, cloud: Any) -> Float[Tensor, "N 3"]:
        """Return the points that the model reads."""
        return next(self.parts(cloud))[1]

    def parts(self, cloud: Any) -> Iterator[tuple[Int[Tensor, " N"], Float[Tensor, "N 3"]]]:
        """Yield views that together have every point of the cloud: which points of it, and what the model reads.

        A larger cloud is divided by chance, so that each view has the whole shape; the last repeats points of others.
        """
        points, most = PointCloud.read(cloud).points, self.max_points
        count = len(points)
        if count < 2:
            raise BadInput("All points of the cloud lie in one place; a shape needs at least two.")
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0)) if count > most else None
        for begin in range(0, count, most):
            rows = (
                torch.arange(count) if order is None else order[max(0, min(begin, count - most)) :][:most].sort().values
            )
            yield rows, normalize_points(points[rows][None].double())[0].float()

    def batch(self, clouds: Sequence[Any]) -> tuple[Float[Tensor, "B N 3"], Int[Tensor, " B"]]:
        """Return clouds as one padded batch, and their lengths."""
        each = [self(cloud) for cloud in clouds]
        padded = torch.nn.utils.rnn.pad_sequence(each, batch_first=True) if each else torch.zeros(0, 1, 3)
        return padded, torch.tensor([len(points) for points in each], dtype=torch.long)


def normalize_points(points: Float[Tensor, "B N 3"]) -> Float[Tensor, "B N 3"]:
    """Return clouds without padding, each around its mean and with its farthest point at distance 1."""
    points = points - points.mean(1, keepdim=True)
    radius = points.norm(dim=-1).amax(1)[:, None, None]
    return points / radius.clamp(min=torch.finfo(points.dtype).tiny)
