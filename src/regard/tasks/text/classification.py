"""Classification: what kind of text it is, or how two texts relate.

    objective    cross-entropy of the label, summed over the texts; one linear map of the pooled [CLS] vector
    metric       accuracy, macro F1, Matthews' correlation (metrics.classification), loss (nats per text)
    decoding     none
    predict      `Classifier`: texts in, labels with their probabilities out (tasks.text.classifier)

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, figure 4 (a) and (b)
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
from regard.data.text.labeled_text import LabeledText, TextBatch
from regard.metrics.classification import accuracy, macro_f1, matthews_correlation
from regard.tasks.base import load_tokenizer
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderTask, evaluation_data

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """How a classifier is trained."""

    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: LabeledText, seed: int = 0, folder: Path | None = None) -> TextClassification:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return TextClassification(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> LabeledText:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return evaluation_data(LabeledText, corpus, saved, changes)


class TextClassification(EncoderTask):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "accuracy"
    unit = "texts"
    name = "classification"

    def __init__(self, config: Config, data: LabeledText, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.labels = config, data.labels()
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def head(self) -> str:
        """One score a label."""
        return f"classes({len(self.labels)})"

    def count(self, batch: TextBatch) -> int:
        """The number of texts."""
        return len(batch.labels)

    def loss(
        self, model: nn.Module, batch: TextBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the texts."""
        logits = model(batch.tokens, batch.segments, batch.lengths).float()
        total = self.objective(logits, batch.labels, reduction="sum", label_smoothing=self.config.label_smoothing)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "labels": self.labels, "max_length": self.data.max_length}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, text = self.dataset("train"), self.text
        cut = f" ({train.cut:,} cut at {self.data.max_length} tokens)" if train.cut else ""
        return (
            f"{self.data.corpus}, {len(train):,} texts{cut}, {len(self.labels)} labels, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats per text), accuracy, macro_f1, matthews, texts."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        said, true = [], []
        for batch in part.eval_batches(BATCH_TOKENS):
            batch = batch.to(device)
            logits = model(batch.tokens, batch.segments, batch.lengths).float()
            nll += F.cross_entropy(logits, batch.labels, reduction="sum")
            said.append(logits.argmax(-1))
            true.append(batch.labels)
        both: Any = torch.cat(said).tolist(), torch.cat(true).tolist()
        scores = {
            "accuracy": accuracy(*both),
            "macro_f1": macro_f1(*both),
            "matthews_correlation": matthews_correlation(*both),
        }
        return {"loss": float(nll) / len(part), **scores, "texts": len(part)}
