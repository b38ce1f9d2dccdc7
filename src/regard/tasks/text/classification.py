"""Text classification: what kind of text it is, or how two texts relate.

    input        Text, or two of them: text, other
    output       Classes
    loss         cross-entropy of the label, summed over the texts; one linear map of the pooled [CLS] vector,
                 or of the mean of all tokens (`pool`), which suits attention that does not reach from [CLS] to the end
    metrics      accuracy, macro F1, Matthews' correlation (metrics.classification), loss (nats per text)

Devlin, Chang, Lee, Toutanova: BERT. NAACL 2019. arXiv:1810.04805, figure 4 (a) and (b)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.data.text.labeled_text import LabeledText, TextBatch, encode_pair, find_columns
from regard.metrics.base import ACCURACY, Metric, fraction, loss_metric
from regard.metrics.classification import accuracy, macro_f1, matthews_correlation
from regard.modalities.classes import Classes
from regard.modalities.text import Text
from regard.tasks.base import call_with_state, load_tokenizer
from regard.tasks.predictor import Predictor, check_label_count
from regard.tasks.text.encoder_base import (
    BATCH_TOKENS,
    EncoderPredictor,
    EncoderTask,
    check_texts,
    evaluation_data,
    log,
)

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    label_smoothing: float = field(0.0, low=0, below=1)
    pool: Literal["token", "mean"] = "token"  # what the head reads: the vector of [CLS], or the mean of all tokens

    def build(self, data: LabeledText, seed: int = 0, folder: Path | None = None) -> TextClassification:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return TextClassification(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> LabeledText:
        """Return the data of a name to evaluate a saved model on, given its config.json."""
        own = Path(corpus).expanduser()
        two = saved["task"]["name"] == "pair_classification"
        columns = find_columns(own) if own.exists() and not two else "text other label" if two else "text label"
        return evaluation_data(partial(LabeledText, columns=columns), corpus, saved, changes)


class TextClassification(EncoderTask):
    """Train and evaluate a text classifier."""

    metrics = (
        ACCURACY,
        fraction("macro_f1", "macro F1"),
        Metric("matthews_correlation", "Matthews correlation", low=-1.0, high=1.0, digits=4),
        loss_metric("nats per text"),
    )
    split_size = "texts"
    unit = "texts"
    name = "classification"

    def __init__(self, config: Config, data: LabeledText, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.labels = config, data.labels()
        self.objective: Callable[..., Tensor] = F.cross_entropy

    def head(self) -> str:
        pool = "" if self.config.pool == "token" else f", pool='{self.config.pool}'"
        return f"classes({len(self.labels)}{pool})"

    def count(self, batch: TextBatch) -> int:
        return len(batch.labels)

    def loss(
        self, model: nn.Module, batch: TextBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, batch.tokens, batch.segments, batch.lengths)
        smoothing = self.config.label_smoothing
        total = self.objective(logits.float(), batch.labels, reduction="sum", label_smoothing=smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        name = "pair_classification" if self.data.has_pairs() else self.name
        return {"name": name, "labels": self.labels, "max_length": self.data.max_length}

    def card(self) -> str:
        train, text = self.dataset("train"), self.text
        cut = f" ({train.cut:,} cut at {self.data.max_length} tokens)" if train.cut else ""
        return (
            f"{self.data.corpus}, {len(train):,} texts{cut}, {len(self.labels)} labels, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per text), accuracy, macro_f1, matthews_correlation."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        predicted, true = [], []
        for batch in part.eval_batches(BATCH_TOKENS):
            batch = batch.to(device)
            logits = model(batch.tokens, batch.segments, batch.lengths).float()
            nll += F.cross_entropy(logits, batch.labels, reduction="sum")
            predicted.append(logits.argmax(-1))
            true.append(batch.labels)
        both: Any = torch.cat(predicted).tolist(), torch.cat(true).tolist()
        scores = {
            "accuracy": accuracy(*both),
            "macro_f1": macro_f1(*both),
            "matthews_correlation": matthews_correlation(*both),
        }
        return {"loss": float(nll) / len(part), **scores, "texts": len(part)}


class TextClassifier(EncoderPredictor):
    """Texts in, labels with their probabilities out.

        classify = TextClassifier(model, text, labels=["negative", "positive"])
        classify("a stirring , funny film")                Classes("positive", 0.98, {...})
        classify(["It rains."], ["It is wet outside."])    pairs of texts, where the model was trained on pairs

    Other texts of a batch do not change an output. A text longer than the model takes is truncated, with a warning.
    """

    outputs = Classes
    examples: ClassVar[tuple[Any, ...]] = (
        "Two dogs are playing in the snow.",
        "Zwei Hunde spielen im Schnee.",
        "Deux chiens jouent.",
    )

    def __init__(self, model: nn.Module, text: Tokenizer, labels: Sequence[str], max_length: int | None = None) -> None:
        super().__init__(model, text, max_length)
        check_label_count(labels, getattr(getattr(getattr(model, "head", None), "out", None), "out_features", None))
        self.labels = list(labels)

    def __call__(self, texts: Any, others: Any = None, **options: Any) -> Any:
        """Return the classes of a text or of every text of a list; with `others`, of pairs of texts."""
        if others is None:
            return super().__call__(texts, **options)
        return TextPairClassifier(self.model, self.text, self.labels, self.max_length)(texts, others, **options)

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        return self._classify([(text,) for text in batch])

    def _classify(self, rows: Sequence[tuple[str, ...]]) -> list[Classes]:
        """Return the classes of every row of one or two texts."""
        if not rows:
            return []
        encoded = [self.text.encode(check_texts(side)) for side in zip(*rows, strict=True)]
        pairs = [encode_pair(self.text, ids, self.room) for ids in zip(*encoded, strict=True)]
        sizes = [sum(map(len, ids)) + len(ids) + 1 for ids in zip(*encoded, strict=True)]
        if cut := [number for number, size in enumerate(sizes, 1) if size > self.room]:
            many = f"text {cut[0]} is" if len(cut) == 1 else f"{len(cut)} texts (the first is text {cut[0]}) are"
            log.warning("%s longer than the %d tokens that this model takes: truncated", many, self.room)
        found: dict[int, Classes] = {}
        for some, logits in self._rows([row for row, _ in pairs], [which for _, which in pairs]):
            for row, shares in zip(some, torch.softmax(logits.float(), -1).tolist(), strict=True):
                found[row] = Classes.rank(self.labels, shares)
        return [found[row] for row in range(len(rows))]


class TextPairClassifier(TextClassifier):
    """Pairs of texts in, labels with their probabilities out: ``classify("It rains.", "It is wet outside.")``."""

    inputs = {"text": Text, "other": Text}  # noqa: RUF012
    examples = ({"text": "It rains.", "other": "It is wet outside."},)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return Predictor.__call__(self, *inputs, **options)

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        return self._classify([(each["text"], each["other"]) for each in batch])
