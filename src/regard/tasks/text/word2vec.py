"""Word vectors: tell the words near a word from words drawn at random.

    objective    negative sampling, summed over windows (models.word2vec)
    metric       loss (nats per word, on windows that are always the same)
    predict      `Words`: nearest neighbours, analogies, vectors (tasks.text.nearest_words)

Which words are dropped, how far a window reaches and what is drawn against it: data.nearby. The loss depends on all
three, so it says how a run goes, and compares runs with the same settings only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.data.batching import BatchStream
from regard.data.text.skip_gram import ContextWindowBatch, ContextWindows
from regard.data.text.word_sentences import WordSentences
from regard.tasks.base import TextTask, load_tokenizer

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """What is near, and what it is told from."""

    window: int = 5  # words to each side at most
    negatives: int = 5  # words drawn for a window
    power: float = field(0.75, low=0)  # of the frequency they are drawn by
    subsample: float = field(1e-3, low=0)  # words more frequent than this are dropped now and then; 0: never
    eval_examples: int | None = None  # windows at each look; None: all of the validation part

    def quick(self) -> Config:
        """A few windows at each look."""
        return replace(self, eval_examples=512)

    def build(self, data: WordSentences, seed: int = 0, folder: Path | None = None) -> WordVectors:
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return WordVectors(self, data, load_tokenizer(folder), seed)


class WordVectors(TextTask[ContextWindows]):
    """What the training loop trains."""

    headline = "loss"  # the lower the better
    unit = "words"
    name = "word2vec"
    data: WordSentences

    def __init__(self, config: Config, data: WordSentences, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        numbers = data.numbers("train", self.text)
        self.counts = np.bincount(numbers.values.numpy(), minlength=self.text.size)
        self.counts[[self.text.pad, self.text.bos, self.text.eos, self.text.unk]] = 0
        self._parts["train"] = self._nearby(numbers, seed)

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary."""
        return replace(config, vocab=self.text.size)

    def batches(self) -> BatchStream[ContextWindowBatch]:
        """The training batches."""
        return self._parts["train"].stream()

    def count(self, batch: ContextWindowBatch) -> int:
        """The number of words."""
        return len(batch.words)

    def loss(
        self, model: nn.Module, batch: ContextWindowBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Negative sampling, summed over the batch."""
        total = model(batch.words, batch.contexts, batch.negatives)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        return (
            f"{', '.join(self.data.corpora)}, {self._parts['train'].tokens:,} words, {self.text.size:,} known, "
            f"windows of {self.config.window} to each side, {self.config.negatives} drawn, {self.data.batch_tokens:,} a batch"
        )

    def _load(self, split: str) -> ContextWindows:
        return self._nearby(self.data.numbers(split, self.text), 0)

    def fingerprint(self) -> str:
        """A few letters that change when the training data do."""
        return self.data.fingerprint("train")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per word), words."""
        device = next(model.parameters()).device
        model.eval()
        total, words = torch.zeros((), dtype=torch.float64, device=device), 0
        for batch in self.dataset(split).eval_batches(None if effort > 1 else self.config.eval_examples):
            words += self.count(batch)
            batch = batch.to(device)
            total += model(batch.words, batch.contexts, batch.negatives)
        return {"loss": float(total) / max(words, 1), "words": words}

    def _nearby(self, numbers: Any, seed: int) -> ContextWindows:
        c = self.config
        return ContextWindows(
            numbers, self.counts, batch_size=self.data.batch_tokens, window=c.window, negatives=c.negatives, sample=c.subsample,
            power=c.power, seed=seed,
        )  # fmt: skip
