"""Labelled point clouds in memory: a batch, and the base of the datasets, whose clouds all have so many points.

Which of them a model sees, and how they are turned, the task decides (tasks.points).
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, TensorBatch, TensorSplit


@dataclass(frozen=True, eq=False)
class PointBatch(TensorBatch):
    """Clouds without padding, their points in random order; a label for each cloud, or for each point."""

    points: Float[Tensor, "B N 3"]
    labels: Int[Tensor, "B *N"]

    def take_points(self, index: Int[Tensor, " P"] | slice) -> PointBatch:
        """Return the same points of every cloud."""
        return PointBatch(self.points[:, index], self.labels if self.labels.ndim == 1 else self.labels[:, index])


class PointDataset(Dataset):
    """Settings of a dataset of labelled clouds; a subclass writes `labels` and `clouds`."""

    batch_size: int

    def __post_init__(self) -> None:
        validate(self, "data.")

    def labels(self) -> list[str]:
        """Return the names of the classes."""
        raise NotImplementedError

    def clouds(self, split: str) -> PointBatch:
        """Return all clouds of a split."""
        raise NotImplementedError

    def load(self, split: str) -> TensorSplit[PointBatch]:
        return TensorSplit(self.clouds(self.split(split)), self.batch_size)
