"""Looking at a text that is told apart, or at a pair of texts: one side, the tokens between their marks."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.tasks.classifier import Classifier, ranked
from regard.tasks.look import NOWHERE, Place
from regard.tasks.looks import texts
from regard.tasks.looks.reading import ReadingLook
from regard.tasks.reading import texts_of


class ClassificationLook(ReadingLook):
    """A text and its label; relevance is asked for one of the labels, which are read off the first token."""

    task = "classification"
    takes: ClassVar[dict[str, Any]] = {"text": str, "other": str}
    predictor: Classifier

    def read(self) -> None:
        """Read the text, or the pair, which is shown one below the other."""
        text = self.predictor.text
        lines = texts_of([self.given[part] for part in ("text", "other") if part in self.given])
        parts = text.encode(lines)
        ids, segments = text.enclose(*parts)
        places, at = list[Place](), 0
        for part, line in zip(parts, lines, strict=True):
            places += [NOWHERE] * bool(places) + [texts.moved(place, at) for place in texts.typed(text, part, line)]
            at += len(line) + 1
        which = None if len(lines) == 1 else torch.tensor([segments], device=self._device())
        logits = self._through(ids, places, "\n".join(lines), which)
        found = ranked(self.predictor.labels, torch.softmax(logits[0].float(), -1).tolist())
        self.output = {"label": found.label, "probabilities": found.probabilities}

    @property
    def targets(self) -> list[str]:
        """Every label."""
        return self.predictor.labels

    def _answer(self, target: int) -> tuple[int, Any]:
        return 0, lambda logits: logits[0, target]
