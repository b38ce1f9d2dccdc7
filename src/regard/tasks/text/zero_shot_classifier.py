"""Zero-shot classification: labels by the similarity of their vectors to that of the text, without training.

    p(label) = softmax over the labels of  20 · cos(vector of the text, vector of the label)

20 is the scale in the training loss of sentence embedders such as MiniLM. A label may be several words; it works best
if it describes the texts.

Reimers, Gurevych: Sentence-BERT. EMNLP 2019. arXiv:1908.10084
Yin, Hay, Roth: Benchmarking Zero-shot Text Classification. EMNLP 2019. arXiv:1909.00161
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.modalities.classes import Classes
from regard.modalities.text import Text
from regard.tasks.predictor import Predictor
from regard.tasks.text.embedder import TextEmbedder

COSINE_SCALE = 20.0


class ZeroShotClassifier(Predictor):
    """Texts in, the probabilities of labels of one's own out."""

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Classes
    examples = ("The keeper saved a penalty.", "Parliament votes on the new budget.")

    def __init__(self, embedder: TextEmbedder, labels: Sequence[str]) -> None:
        labels = [label.strip() for label in labels]
        if len(labels) < 2 or not all(labels) or len(set(labels)) < len(labels):
            raise BadInput(f"labels must be at least two, not empty and different; got {', '.join(labels) or 'none'}")
        self.embedder, self.labels, self.model = embedder, labels, embedder.model
        self.vectors = F.normalize(embedder(labels), dim=-1)

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        vectors = F.normalize(self.embedder.embed(batch, overflow="split"), dim=-1)
        return [
            Classes.rank(self.labels, row)
            for row in torch.softmax(COSINE_SCALE * vectors @ self.vectors.T, -1).tolist()
        ]
