"""Telling texts apart: texts in, labels with their probabilities out.

    classify = Classifier(model, text, labels=["negative", "positive"])
    classify(["a stirring , funny film"])                [Classified("positive", 0.98, {...})]
    classify(["It rains."], ["It is wet outside."])      pairs of texts, where the model was trained on pairs

Every text is read by itself, whoever else is in the batch. A text that is longer than the model reads is cut, and a
warning says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.data.labelled import framed_pair
from regard.tasks.reading import Reader, log, texts_of

if TYPE_CHECKING:
    from regard.tokens.text import Text


@dataclass(frozen=True)
class Classified:
    """The likeliest label, its probability, and those of all labels, the likeliest first."""

    label: str
    probability: float
    probabilities: dict[str, float]


class Classifier(Reader):
    """A model that tells texts apart, with its vocabulary and its labels, to be called."""

    def __init__(self, model: nn.Module, text: Text, labels: Sequence[str], longest: int | None = None) -> None:
        super().__init__(model, text, longest)
        self.labels = list(labels)

    def __call__(self, texts: Sequence[str], others: Sequence[str] | None = None) -> list[Classified]:
        """The label of every text, or of every pair of a text and the other one."""
        first = texts_of(texts)
        second = None if others is None else texts_of(others)
        if second is not None and len(second) != len(first):
            raise BadInput(f"{len(first)} texts and {len(second)} others are not pairs")
        if not first:
            return []
        encoded = [self.text.encode(side) for side in (first, second) if side is not None]
        pairs = [framed_pair(self.text, *ids, room=self.room) for ids in zip(*encoded, strict=True)]
        for number, (ids, (row, _)) in enumerate(zip(zip(*encoded, strict=True), pairs, strict=True), 1):
            if len(row) < sum(map(len, ids)) + len(ids) + 1:
                log.warning("text %d: %d tokens, cut at the %d that the model reads", number, sum(map(len, ids)), self.room)  # fmt: skip  # noqa: E501
        found: list[Classified | None] = [None] * len(first)
        for rows, logits in self._rows([row for row, _ in pairs], [which for _, which in pairs]):
            for row, shares in zip(rows, torch.softmax(logits.float(), -1).tolist(), strict=True):
                found[row] = self._said(shares)
        return [each for each in found if each is not None]

    def _said(self, shares: Sequence[float]) -> Classified:
        ranked = sorted(zip(self.labels, shares, strict=True), key=lambda pair: -pair[1])
        return Classified(*ranked[0], dict(ranked))
