"""Classification: what kind of text it is, or how two texts relate.

    objective    cross-entropy of the label, summed over the texts; one linear map of the pooled [CLS] vector
    metric       accuracy, macro F1, Matthews' correlation (tasks.tally), loss (nats a text)
    decoding     none
    predict      `Classifier`: texts in, labels with their probabilities out (tasks.classifier)

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

from regard.core.shapes import Float, Tensor
from regard.data.labelled import Labelled, Texts
from regard.tasks.parts import vocabulary
from regard.tasks.reading import TOKENS, Reading, measured_on
from regard.tasks.tally import accuracy, macro_f1, matthews

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Config:
    """How a classifier is trained."""

    smoothing: float = 0.0

    def build(self, data: Labelled, seed: int = 0, folder: Path | None = None) -> Classification:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        return Classification(self, data, vocabulary(folder), seed)

    @staticmethod
    def measured(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Labelled:
        """The data of a name to measure a saved model on, whose config.json this is."""
        return measured_on(Labelled, corpus, saved, changes)


class Classification(Reading):
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "accuracy"
    unit = "texts"
    name = "classification"

    def __init__(self, config: Config, data: Labelled, text: Text | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.labels = config, data.labels()
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def head(self) -> str:
        """One score a label."""
        return f"classes({len(self.labels)})"

    def count(self, batch: Texts) -> int:
        """The number of texts."""
        return len(batch.labels)

    def loss(
        self, model: nn.Module, batch: Texts, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Cross-entropy summed over the texts."""
        logits = model(batch.tokens, batch.segments, batch.lengths).float()
        total = self.objective(logits, batch.labels, reduction="sum", label_smoothing=self.config.smoothing)
        return total, {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        return {"name": self.name, "labels": self.labels, "longest": self.data.length}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        train, text = self.part("train"), self.text
        cut = f" ({train.cut:,} cut at {self.data.length} tokens)" if train.cut else ""
        return (
            f"{self.data.corpus}, {len(train):,} texts{cut}, {len(self.labels)} labels, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats a text), accuracy, macro_f1, matthews, texts."""
        part, device = self.part(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        said, true = [], []
        for batch in part.in_order(TOKENS):
            batch = batch.to(device)
            logits = model(batch.tokens, batch.segments, batch.lengths).float()
            nll += F.cross_entropy(logits, batch.labels, reduction="sum")
            said.append(logits.argmax(-1))
            true.append(batch.labels)
        both: Any = torch.cat(said).tolist(), torch.cat(true).tolist()
        scores = {"accuracy": accuracy(*both), "macro_f1": macro_f1(*both), "matthews": matthews(*both)}
        return {"loss": float(nll) / len(part), **scores, "texts": len(part)}
