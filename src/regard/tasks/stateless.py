"""A task without a life of its own: nothing moves between updates but the model, and nothing of it is in a checkpoint.

A task that has one (a teacher, a baseline, a curriculum) writes these four itself; see training/task.py.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.metrics.base import Metric, loss_metric


class Stateless:
    """The part of a task that most tasks leave empty."""

    metrics: tuple[Metric, ...] = (loss_metric(""),)  # of `evaluate` and `report`; the first is the primary one
    unit = "tokens"  # what `count` counts
    split_size = "tokens"  # the key of a report that has the size of the split
    capturable = False  # whether updates were tested as CUDA graphs (train.graph=auto captures only those)

    def after_update(self, model: nn.Module, step: int) -> None:
        """Nothing moves here but the model itself."""

    def modules(self) -> dict[str, nn.Module]:
        """No module beside the model."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """No state beside the model's."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""
