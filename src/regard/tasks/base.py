"""Parts of data: what tasks share whose data come as train, val and test, each of them read once.

    Parted    a task over such data
    Worded    one over text, with its vocabulary

A task that reads its data in a way of its own says so in `_load`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import nn

from regard.core.shapes import Tensor
from regard.data.batching import BatchStream
from regard.tasks.stateless import Stateless

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Part = TypeVar("Part")

EVAL_ROWS = 256  # examples of a batch of `SplitTask.evaluate`


class SplitTask(Stateless, Generic[Part]):
    """A task over data that come in splits. To write: `loss`, `evaluate`, `describe`; and `fit`, `count`, `card`."""

    name: str

    def __init__(self, data: Any, seed: int = 0) -> None:
        self.data, self.seed = data, seed
        self._parts: dict[str, Part] = {}

    def fit(self, config: Any) -> Any:
        """Return the model's config with the fields that only the data determine; by default there are none."""
        return config

    def count(self, batch: Any) -> int:
        """Return what the loss of a batch is divided by: its rows, unless the task says otherwise."""
        return len(batch[0])

    def card(self) -> str:
        """Return one line about the data."""
        train: Any = self.dataset("train")
        return f"{type(self.data).__name__}, {len(train):,} examples to train on"

    def batches(self) -> BatchStream[Any]:
        """The training batches."""
        train: Any = self.dataset("train")
        stream: BatchStream[Any] = train.stream(self.seed)
        return stream

    def dataset(self, split: str) -> Part:
        """One part of the data, read once."""
        split = self.data.split(split)
        if split not in self._parts:
            self._parts[split] = self._load(split)
        return self._parts[split]

    def _load(self, split: str) -> Part:
        part: Part = self.data.load(split)
        return part

    def save(self, folder: Path) -> None:
        """There is nothing beside the model."""

    def fingerprint(self) -> str:
        """A few letters that change when the training data or the vocabulary do."""
        train: Any = self.dataset("train")
        found: str = train.fingerprint()
        return found

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part."""
        self.dataset("val")

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
        """Everything there is to say about a model on one part; nothing is searched for."""
        return self.evaluate(model, split) | {"split": self.data.split(split)}


class TextTask(SplitTask[Part]):
    """A task over text: with the vocabulary given, else that of the data."""

    def __init__(self, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.text: Tokenizer = data.build_tokenizer() if text is None else text

    def _load(self, split: str) -> Part:
        part: Part = self.data.load(split, self.text)
        return part

    def save(self, folder: Path) -> None:
        """Write the vocabulary."""
        self.text.save(folder)


def load_tokenizer(folder: Path | None) -> Tokenizer | None:
    """The vocabulary in a folder, where one is given."""
    from regard.tokens.tokenizer import Tokenizer

    return None if folder is None else Tokenizer.load(folder)
