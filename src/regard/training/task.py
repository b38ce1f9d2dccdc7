"""What the training loop needs from a task.

    before        fit, initialize, ready, fingerprint, batches, save          the model's config and the data
    each update   loss, count, after_update                       a summed loss and its divisor
    evaluation    evaluate                                        metrics of the model
    checkpoint    modules, state_dict                             state besides the model: a teacher, a baseline,
                                                                  moving averages, a curriculum

A task with state of its own keeps it in `modules` and `state_dict`, changes it only in `after_update`, and draws random
numbers from the generator it is given: then it resumes to the bit like the model itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from regard.core.shapes import Tensor
from regard.data.batching import BatchStream
from regard.metrics.base import Metric


class Task(Protocol):
    """Protocol of a task. Its Config has ``build(data, seed, folder)``; the folder is that of a run to resume.

    A batch is a tuple of tensors with ``to(device)``, ``pin()`` and ``rows(n)``, its first n rows.
    """

    metrics: tuple[Metric, ...]  # of `evaluate`; the first is the primary one
    name: str
    unit: str  # what `count` counts: tokens, words, images
    split_size: str  # the key of a report that has the size of the split
    capturable: bool  # updates may be CUDA graphs: they compute on the device, with state in tensors changed in place

    def extend_vocabulary(self) -> int:
        """Add to the vocabulary of the model that training starts from what the data need; return how many tokens."""
        ...

    def fit(self, config: Any) -> Any:
        """Return the model's config with the fields that only the data determine."""
        ...

    def initialize(self, model: nn.Module) -> None:
        """Copy weights that the task brings into a new model: those of an encoder whose outputs the data store."""
        ...

    def batches(self) -> BatchStream[Any]:
        """Return the endless stream of training batches."""
        ...

    def loss(self, model: nn.Module, batch: Any, step: Any, rng: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss summed over a batch, and its parts (detached sums) for the log; "loss" is one of them.

        `step`, the number of updates before this one, is a tensor on a GPU; `rng` is a generator on the batch's device.
        """
        ...

    def count(self, batch: Any) -> int:
        """Return what the loss of a batch is divided by: its tokens, its rows."""
        ...

    def after_update(self, model: nn.Module, step: int) -> None:
        """Update teachers, centroids and other state that changes only between updates."""
        ...

    def modules(self) -> dict[str, nn.Module]:
        """Return modules besides the model; their parameters with requires_grad are trained too."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return other state, as plain values and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        ...

    def fingerprint(self) -> str:
        """Return a hash that changes with the training data."""
        ...

    def ready(self, score: bool) -> None:
        """Raise now what would otherwise fail at the first evaluation: no validation split, a missing package."""
        ...

    def evaluate(self, model: nn.Module, split: str, effort: int) -> dict[str, Any]:
        """Evaluate a model: effort 0 the loss, 1 also a quick score, 2 the score as it is reported."""
        ...

    def save(self, folder: Path) -> None:
        """Write files of the task that a run needs (a vocabulary) into its folder."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the task as plain values, stored with a saved model."""
        ...

    def card(self) -> str:
        """Return one line about the data."""
        ...
