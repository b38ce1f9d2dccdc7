"""Tagging: a label for every word of a sentence.

    input        Text whose words have spaces between them
    output       TokenLabels
    loss         cross-entropy of the label at the first token of every word, summed
    metrics      accuracy of words; where labels mark chunks (B-NP, I-NP, O) precision, recall and F1 of whole chunks
    decoding     the most likely label of every word by itself

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, figure 4 (d)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets
from regard.data.text.tagged_sentences import TagBatch, TaggedSentences, encode_sentences
from regard.metrics.base import F1, PRECISION, RECALL, Metric, fraction, loss_metric
from regard.metrics.classification import accuracy, chunk_f1, is_chunk_tagging
from regard.modalities.token_labels import TokenLabels
from regard.tasks.base import call_with_state, load_tokenizer
from regard.tasks.predictor import check_label_count
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderPredictor, EncoderTask, evaluation_data

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: TaggedSentences, seed: int = 0, folder: Path | None = None) -> Tagging:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return Tagging(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> TaggedSentences:
        """Return the data of a name to evaluate a saved model on, given its config.json."""
        return evaluation_data(TaggedSentences, corpus, saved, changes)


class Tagging(EncoderTask):
    """Train and evaluate a tagger."""

    name = "tagging"
    metrics: tuple[Metric, ...] = (fraction("accuracy", "word accuracy"), loss_metric("nats per word"))
    split_size = "words"
    unit = "words"

    def __init__(self, config: Config, data: TaggedSentences, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.labels = config, data.labels()
        if is_chunk_tagging(self.labels):
            self.metrics = (F1, PRECISION, RECALL, *self.metrics)
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def head(self) -> str:
        return f"tags({len(self.labels)})"

    def count(self, batch: TagBatch) -> int:
        return count_targets(batch.targets)

    def loss(
        self, model: nn.Module, batch: TagBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, batch.tokens, None, batch.lengths)
        total = self._loss(logits, batch, self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def _loss(self, logits: Tensor, batch: TagBatch, label_smoothing: float) -> Float[Tensor, ""]:
        flat = logits.flatten(0, 1).float(), batch.targets.flatten()
        return self.objective(*flat, ignore_index=IGNORE_INDEX, reduction="sum", label_smoothing=label_smoothing)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "labels": self.labels, "max_length": self.data.max_length}

    def card(self) -> str:
        train, text = self.dataset("train"), self.text
        words = sum(len(words) for words, _ in train.sentences)
        return (
            f"{self.data.corpus}, {len(train.sentences):,} sentences, {words:,} words, {len(self.labels)} tags, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per word), accuracy, words; if tags mark chunks also
        precision, recall and f1 of chunks.
        """
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        words = 0
        for batch in part.eval_batches(BATCH_TOKENS):
            words += self.count(batch)
            batch = batch.to(device)
            nll += self._loss(model(batch.tokens, None, batch.lengths), batch, 0.0)
        said = Tagger(model, self.text, self.labels, self.data.max_length).tags([words for words, _ in part.sentences])
        true = [list(tags) for _, tags in part.sentences]
        result: dict[str, Any] = {"loss": float(nll) / max(words, 1)}
        result["accuracy"] = accuracy([t for tags in said for t in tags], [t for tags in true for t in tags])
        if is_chunk_tagging(self.labels):
            result |= chunk_f1(said, true)
        return result | {"words": sum(map(len, true))}


class Tagger(EncoderPredictor):
    """Sentences in, a label for each word out.

        tag = Tagger(model, text, labels=["B-NP", "I-NP", "O", ...])
        tag("He reckons the deficit will narrow .")            TokenLabels: He/B-NP reckons/B-VP the/B-NP ...
        tag.tags([["He", "reckons"]])                          [["B-NP", "B-VP"]]

    Other sentences of a batch do not change an output. A sentence longer than the model takes is split between words.
    """

    outputs = TokenLabels
    examples = ("He reckons the current account deficit will narrow .", "Two dogs are playing in the snow .")

    def __init__(self, model: nn.Module, text: Tokenizer, labels: Sequence[str], max_length: int | None = None) -> None:
        super().__init__(model, text, max_length)
        check_label_count(labels, getattr(getattr(getattr(model, "head", None), "out", None), "out_features", None))
        self.labels = list(labels)

    def predict(self, batch: list[Any], options: Any) -> list[TokenLabels]:
        rows = [sentence.split() for sentence in batch]
        return [TokenLabels(tuple(words), tuple(tags)) for words, tags in zip(rows, self.tags(rows), strict=True)]

    def tags(self, sentences: Sequence[str | Sequence[str]]) -> list[list[str]]:
        """Return the labels of every sentence: a text whose words have spaces between them, or a list of words."""
        if isinstance(sentences, str):
            raise BadInput("give a list of sentences, not a single one")
        split = [each.split() if isinstance(each, str) else list(each) for each in sentences]
        for number, words in enumerate(split, 1):
            if not words or not all(isinstance(word, str) for word in words):
                raise BadInput(f"sentence {number} has no words to tag; give at least one")
        if not split:
            return []
        parts = [
            (n, row, places)
            for n, cut in enumerate(encode_sentences(self.text, split, self.room))
            for row, places in cut
        ]
        tags: dict[int, list[str]] = {}  # by row
        for rows, logits in self._rows([row for _, row, _ in parts]):
            for row, best in zip(rows, logits.argmax(-1).tolist(), strict=True):
                tags[row] = [self.labels[best[place]] for place in parts[row][2]]
        found: list[list[str]] = [[] for _ in split]
        for row, (sentence, *_) in enumerate(parts):
            found[sentence] += tags[row]
        return found
