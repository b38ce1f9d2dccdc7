"""What the one training loop asks of a task.

    before      fit, ready, fingerprint, batches, save          what is trained on what
    each update loss, count, after_update                       a sum and what it is divided by
    each look   evaluate                                        how good the model is
    all along   modules, state_dict                             what lives beside the model: a teacher, a baseline,
                                                                moving averages, a curriculum; all in the checkpoint

A task with a life of its own keeps that life in `modules` and `state_dict`, moves it in `after_update` alone, and draws
random numbers from the generator it is handed: then it is under the law of exact resume like the model itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from regard.core.shapes import Tensor
from regard.data.batching import BatchStream


class Task(Protocol):
    """What the loop asks of a task. Its Config has ``build(data, seed, folder)``, the folder being that of a run to go
    on with. A batch is a tuple of tensors with ``to(device)``, ``pin()`` and ``rows(n)``, its first n rows."""

    headline: str  # the metric that says how good a model is; higher is better
    name: str
    unit: str  # what is counted: tokens, words, images

    def fit(self, config: Any) -> Any:
        """The model's Config with what only the data know."""
        ...

    def batches(self) -> BatchStream[Any]:
        """Training batches without end."""
        ...

    def loss(self, model: nn.Module, batch: Any, step: int, rng: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss summed over a batch, and its parts (detached sums) for the record; "loss" is one of them."""
        ...

    def count(self, batch: Any) -> int:
        """What the loss of a batch is divided by: its tokens, its rows."""
        ...

    def after_update(self, model: nn.Module, step: int) -> None:
        """Move what moves only between updates: teachers, centroids."""
        ...

    def modules(self) -> dict[str, nn.Module]:
        """Modules beside the model; what in them wants a gradient is trained too."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Other state, plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        ...

    def fingerprint(self) -> str:
        """A few letters that change when the training data do."""
        ...

    def ready(self, score: bool) -> None:
        """Raise now what would otherwise come up at the first look: no validation part, a package that is missing."""
        ...

    def evaluate(self, model: nn.Module, split: str, effort: int) -> dict[str, Any]:
        """Measure a model: effort 0 the loss, 1 a quick score too, 2 the score as it is reported."""
        ...

    def save(self, folder: Path) -> None:
        """Write what a run needs of the task beside its checkpoints (a vocabulary)."""
        ...

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        ...

    def card(self) -> str:
        """One line on the data."""
        ...
