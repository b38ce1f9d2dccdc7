"""What tasks share: data in splits, each read once, and the parts of the `Task` protocol that most tasks leave empty.

    SplitTask         a task over a dataset with the splits train, val and test
    TextTask          the same over text, with a tokenizer
    call_with_state   call a model and keep the loss terms that its layers add

A task with state of its own (a teacher, a baseline, a curriculum) overrides `after_update`, `modules`, `state_dict` and
`load_state_dict`; see training/task.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.metrics.base import Metric, loss_metric

if TYPE_CHECKING:
    from regard.data.batching import BatchStream
    from regard.tokens.tokenizer import Tokenizer

Part = TypeVar("Part")

EVAL_ROWS = 256  # examples of a batch of `SplitTask.evaluate`


class SplitTask(Generic[Part]):
    """A task over data that come in splits.

    A subclass writes `loss`, `describe`, and `measure` or an `evaluate` of its own; `fit`, `count`, `card` and `_load`
    where the defaults do not fit.
    """

    name: str
    metrics: tuple[Metric, ...] = (loss_metric(""),)  # of `evaluate` and `report`; the first is the primary one
    unit = "tokens"  # what `count` counts
    split_size = "tokens"  # the key of a report that has the size of the split
    capturable = True  # whether train.graph=auto tries to capture updates as CUDA graphs

    def __init__(self, data: Any, seed: int = 0) -> None:
        self.data, self.seed = data, seed
        self._parts: dict[str, Part] = {}

    def fit(self, config: Any) -> Any:
        """Return the model's config with the fields that only the data determine; by default there are none."""
        return config

    def initialize(self, model: nn.Module) -> None:
        """Copy weights that the task brings into a new model; by default there are none."""

    def count(self, batch: Any) -> int:
        """Return what the loss of a batch is divided by, by default its rows; called before the batch goes to a GPU."""
        return len(batch[0])

    def card(self) -> str:
        """Return one line about the data."""
        train: Any = self.dataset("train")
        return f"{type(self.data).__name__}, {len(train):,} examples to train on"

    def batches(self) -> BatchStream[Any]:
        """Return the endless stream of training batches."""
        train: Any = self.dataset("train")
        stream: BatchStream[Any] = train.stream(self.seed)
        return stream

    def dataset(self, split: str) -> Part:
        """Return a split of the data, read once."""
        split = self.data.split(split)
        if split not in self._parts:
            self._parts[split] = self._load(split)
        return self._parts[split]

    def _load(self, split: str) -> Part:
        part: Part = self.data.load(split)
        return part

    def save(self, folder: Path) -> None:
        """Write files that a run needs besides the model; by default none."""

    def fingerprint(self) -> str:
        """Return a hash that changes with the training data and the vocabulary."""
        train: Any = self.dataset("train")
        found: str = train.fingerprint()
        return found

    def extend_vocabulary(self) -> int:
        """Add to the vocabulary of the model that training starts from what the data need, behind the tokens that it
        has; return how many tokens. By default there are none."""
        return 0

    def ready(self, score: bool) -> None:
        """Raise an error now if there is no validation split."""
        self.dataset("val")

    def with_layer_losses(
        self, total: Float[Tensor, ""], batch: Any, pass_state: PassState, weights: dict[str, float] | None = None
    ) -> Float[Tensor, ""]:
        """Return a loss summed over a batch plus the terms that layers added to it, each times the weight of its name.

        A layer's term (`LayerState.add_loss`) is a mean, so it is multiplied by what the loss is divided by (`count`).
        """
        terms = pass_state.weighted_loss(weights or {})
        return total if terms is None else total + self.count(batch) * terms

    def after_update(self, model: nn.Module, step: int) -> None:
        """Update state that changes only between updates; by default there is none."""

    def modules(self) -> dict[str, nn.Module]:
        """Return modules besides the model; their parameters with requires_grad are trained too."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return other state, as plain values and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state."""

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        """Return the metrics of a batch, each summed over its rows; a task with an `evaluate` of its own needs none."""
        raise NotImplementedError

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the means of `measure` over a split, and how many examples it has (by `split_size`)."""
        part: Any = self.dataset(split)
        model.eval()
        device, sums = next(model.parameters()).device, dict[str, float]()
        for batch in part.eval_batches(EVAL_ROWS):
            for name, value in self.measure(model, batch.to(device)).items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return {name: value / len(part) for name, value in sums.items()} | {self.split_size: len(part)}

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Return the metrics of a finished model on a split, as `regard eval` shows them."""
        return self.evaluate(model, split) | {"split": self.data.split(split)}


class TextTask(SplitTask[Part]):
    """A task over text, with a given tokenizer or that of the data."""

    def __init__(self, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.text: Tokenizer = data.build_tokenizer() if text is None else text

    def _load(self, split: str) -> Part:
        part: Part = self.data.load(split, self.text)
        return part

    def save(self, folder: Path) -> None:
        self.text.save(folder)


def call_with_state(call: Callable[..., Any], *inputs: Any, **named: Any) -> tuple[Any, PassState]:
    """Call a model, or a method of one, with a new `PassState` if it takes one; return its output and the state."""
    pass_state = PassState()
    if "pass_state" in inspect.signature(getattr(call, "forward", call)).parameters:
        named["pass_state"] = pass_state
    return call(*inputs, **named), pass_state


def load_tokenizer(folder: Path | None) -> Tokenizer | None:
    """Return the tokenizer in a folder, if one is given."""
    from regard.tokens.tokenizer import Tokenizer

    if folder is not None and not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise BadInput(f"{folder} has no tokenizer (tokenizer.json), so a model of texts cannot start from it")
    return None if folder is None else Tokenizer.load(folder)
