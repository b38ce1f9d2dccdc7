"""Tagging: what kind of word each one is.

    objective    cross-entropy of the tag at the first piece of every word, summed
    metric       accuracy of words; where tags mark chunks (B-NP, I-NP, O) precision, recall and F1 of whole chunks
    decoding     the likeliest tag of every word by itself
    predict      `Tagger`: sentences in, a tag for each word out (tasks.text.tagger)

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, figure 4 (d)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets
from regard.data.text.tagged_sentences import TagBatch, TaggedSentences
from regard.metrics.classification import accuracy, chunk_f1, is_chunk_tagging
from regard.tasks.base import load_tokenizer
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderTask, evaluation_data
from regard.tasks.text.tagger import Tagger

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How a tagger is trained."""

    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: TaggedSentences, seed: int = 0, folder: Path | None = None) -> Tagging:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return Tagging(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> TaggedSentences:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return evaluation_data(TaggedSentences, corpus, saved, changes)


class Tagging(EncoderTask):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    name = "tagging"
    unit = "words"

    def __init__(self, config: Config, data: TaggedSentences, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.labels = config, data.labels()
        self.headline = "f1" if is_chunk_tagging(self.labels) else "accuracy"
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def head(self) -> str:
        """One score a tag, at every place."""
        return f"tags({len(self.labels)})"

    def count(self, batch: TagBatch) -> int:
        """The number of words."""
        return count_targets(batch.targets)

    def loss(
        self, model: nn.Module, batch: TagBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the words."""
        total = self._loss(model(batch.tokens, None, batch.lengths), batch, self.config.label_smoothing)
        return total, {"loss": total.detach()}

    def _loss(self, logits: Tensor, batch: TagBatch, label_smoothing: float) -> Float[Tensor, ""]:
        flat = logits.flatten(0, 1).float(), batch.targets.flatten()
        return self.objective(*flat, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=label_smoothing)

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "labels": self.labels, "max_length": self.data.max_length}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, text = self.dataset("train"), self.text
        words = sum(len(words) for words, _ in train.sentences)
        return (
            f"{self.data.corpus}, {len(train.sentences):,} sentences, {words:,} words, {len(self.labels)} tags, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per word), accuracy, words; where tags mark chunks
        precision, recall and f1 of chunks. Every word of the part counts, whatever its tag."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        words = 0
        for batch in part.eval_batches(BATCH_TOKENS):
            words += self.count(batch)
            batch = batch.to(device)
            nll += self._loss(model(batch.tokens, None, batch.lengths), batch, 0.0)
        said = Tagger(model, self.text, self.labels, self.data.max_length)([words for words, _ in part.sentences])
        true = [list(tags) for _, tags in part.sentences]
        result: dict[str, Any] = {"loss": float(nll) / max(words, 1)}
        result["accuracy"] = accuracy([t for tags in said for t in tags], [t for tags in true for t in tags])
        if is_chunk_tagging(self.labels):
            result |= chunk_f1(said, true)
        return result | {"words": sum(map(len, true))}
