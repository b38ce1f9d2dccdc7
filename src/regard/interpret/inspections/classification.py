"""Inspection of a text classifier, of one text or a pair: one axis, the tokens with special tokens."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.interpret.inspection import NO_POSITION, Position
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.encoder_base import EncoderInspection
from regard.modalities.classes import Classes
from regard.tasks.text.classification import TextClassifier
from regard.tasks.text.encoder_base import check_texts


class ClassificationInspection(EncoderInspection):
    """A text and its label; relevance is for a label, which is read off the first token."""

    task = "classification"
    input_types: ClassVar[dict[str, Any]] = {"text": str, "other": str}
    predictor: TextClassifier

    def read(self) -> None:
        """Read the text, or the pair, which is shown one below the other."""
        text = self.predictor.text
        lines = check_texts([self.inputs[part] for part in ("text", "other") if part in self.inputs])
        parts = text.encode(lines)
        ids, segments = text.with_special_tokens(*parts)
        positions, at = list[Position](), 0
        for part, line in zip(parts, lines, strict=True):
            positions += [NO_POSITION] * bool(positions) + [
                text_axes.shift_position(place, at) for place in text_axes.input_positions(text, part, line)
            ]
            at += len(line) + 1
        which = None if len(lines) == 1 else torch.tensor([segments], device=self._device())
        logits = self._through(ids, positions, "\n".join(lines), which)
        found = Classes.rank(self.predictor.labels, torch.softmax(logits[0].float(), -1).tolist())
        self.output = {"label": found.label, "probabilities": found.probabilities}

    @property
    def targets(self) -> list[str]:
        """Every label."""
        return self.predictor.labels

    def _answer(self, target: int) -> tuple[int, Any]:
        return 0, lambda logits: logits[0, target]


class PairClassificationInspection(ClassificationInspection):
    """A pair of texts and its label."""

    task = "pair_classification"
    required_inputs = ("other",)
