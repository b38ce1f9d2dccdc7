"""Labelled point clouds in memory: a batch, and the base of the datasets, whose clouds all have so many points.

Which of them a model sees, and how they are turned, the task decides (tasks.points.point_classification).
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.data.base import Dataset, TensorBatch, TensorSplit


@dataclass(frozen=True, eq=False)
class PointBatch(TensorBatch):
    """Clouds without padding, their points in random order, and their labels."""

    points: Float[Tensor, "B N 3"]
    labels: Int[Tensor, " B"]


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
