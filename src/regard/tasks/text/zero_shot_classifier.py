"""Telling texts apart without having learned to: the label whose vector lies nearest to the text's.

    p(label) = softmax over the labels of  20 · cos(vector of the text, vector of the label)

20 is the scale with which sentence vectors of the kind of MiniLM are trained to find their partners among others. A
label may be several words; the better it describes the texts that it stands for, the better it is found.

Reimers, Gurevych: Sentence-BERT. EMNLP 2019. arXiv:1908.10084
Yin, Hay, Roth: Benchmarking Zero-shot Text Classification. EMNLP 2019. arXiv:1909.00161
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.modalities.classes import Classes
from regard.tasks.text.embedder import TextEmbedder

COSINE_SCALE = 20.0


class ZeroShotClassifier:
    """Vectors of texts, and labels that are nothing but words, to be called."""

    def __init__(self, embedder: TextEmbedder, labels: Sequence[str]) -> None:
        labels = [label.strip() for label in labels]
        if len(labels) < 2 or not all(labels) or len(set(labels)) < len(labels):
            raise BadInput(f"give at least two labels, none of them empty or twice; not {', '.join(labels) or 'none'}")
        self.embedder, self.labels, self.model = embedder, labels, embedder.model
        self.vectors = F.normalize(embedder(labels), dim=-1)

    def __call__(self, texts: Sequence[str]) -> list[Classes]:
        """The nearest label of every text; a long text is read in parts."""
        vectors = F.normalize(self.embedder(texts, overflow="split"), dim=-1)
        return [
            Classes.rank(self.labels, row)
            for row in torch.softmax(COSINE_SCALE * vectors @ self.vectors.T, -1).tolist()
        ]
