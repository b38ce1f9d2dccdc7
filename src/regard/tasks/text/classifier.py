"""Telling texts apart: texts in, labels with their probabilities out.

    classify = Classifier(model, text, labels=["negative", "positive"])
    classify(["a stirring , funny film"])                [Classes("positive", 0.98, {...})]
    classify(["It rains."], ["It is wet outside."])      pairs of texts, where the model was trained on pairs

Every text is read by itself, whoever else is in the batch. A text that is longer than the model reads is cut, and a
warning says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.data.text.labeled_text import encode_pair
from regard.modalities.classes import Classes
from regard.tasks.text.encoder_base import EncoderPredictor, check_texts, log

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


class TextClassifier(EncoderPredictor):
    """A model that tells texts apart, with its vocabulary and its labels, to be called."""

    def __init__(self, model: nn.Module, text: Tokenizer, labels: Sequence[str], max_length: int | None = None) -> None:
        super().__init__(model, text, max_length)
        self.labels = list(labels)

    def __call__(self, texts: Sequence[str], others: Sequence[str] | None = None) -> list[Classes]:
        """The label of every text, or of every pair of a text and the other one."""
        first = check_texts(texts)
        second = None if others is None else check_texts(others)
        if second is not None and len(second) != len(first):
            raise BadInput(f"{len(first)} texts and {len(second)} others are not pairs")
        if not first:
            return []
        encoded = [self.text.encode(side) for side in (first, second) if side is not None]
        pairs = [encode_pair(self.text, ids, self.room) for ids in zip(*encoded, strict=True)]
        sizes = [sum(map(len, ids)) + len(ids) + 1 for ids in zip(*encoded, strict=True)]
        if cut := [number for number, size in enumerate(sizes, 1) if size > self.room]:
            many = f"text {cut[0]} is" if len(cut) == 1 else f"{len(cut)} texts (the first is text {cut[0]}) are"
            log.warning("%s longer than the %d tokens this model reads: cut there", many, self.room)
        found: list[Classes | None] = [None] * len(first)
        for rows, logits in self._rows([row for row, _ in pairs], [which for _, which in pairs]):
            for row, shares in zip(rows, torch.softmax(logits.float(), -1).tolist(), strict=True):
                found[row] = Classes.rank(self.labels, shares)
        return [each for each in found if each is not None]
