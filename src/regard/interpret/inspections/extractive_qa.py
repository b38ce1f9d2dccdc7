"""Inspection of extractive question answering: one axis, the question, then the text.

Both are shown one below the other. Of a text that is longer than the model reads, the window is shown in which the best
answer was found.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.interpret.inspection import NO_POSITION, Position
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.encoder_base import EncoderInspection
from regard.tasks.text.encoder_base import check_texts
from regard.tasks.text.extractive_qa import QuestionAnswerer


class ExtractiveQAInspection(EncoderInspection):
    """A question, a text and the answer in it; relevance is asked for its beginning or its end."""

    task = "extractive_qa"
    input_types: ClassVar[dict[str, Any]] = {"text": str, "question": str}
    required_inputs = ("question",)
    predictor: QuestionAnswerer

    def read(self) -> None:
        """Find the answer, then read the window that holds it once more."""
        text = self.predictor.text
        (line,), (question,) = check_texts([self.inputs["text"]]), check_texts([self.inputs["question"]], "question")
        (found,) = self.predictor.find([line], [question])
        window, self.ends = found.window, (found.first, found.last)
        asked = text_axes.input_positions(text, text.encode_one(question), question)[: window.first - 2]
        below = [text_axes.shift_position({"text": list(span)}, len(question) + 1) for span in window.spans]
        segments = torch.tensor([window.segments], device=self._device())
        positions: list[Position] = [*asked, NO_POSITION, *below]
        self._through(window.tokens, positions, f"{question}\n{line}", segments)
        self.output = {
            "text": found.answer.text,
            "begin": found.answer.begin,
            "end": found.answer.end,
            "score": found.answer.score,
        }
        first, last = self.ends
        notes = [""] * len(window.tokens)
        notes[first : last + 1] = ["answer", *["…"] * (last - first)]
        self.axes["text"] = self.axes["text"]._replace(notes=notes)

    def summary(self) -> list[str]:
        return [self.inputs["question"].strip(), self.output["text"]]

    @property
    def targets(self) -> list[str]:
        """The first and the last token of the answer."""
        tokens = self.axes["text"].tokens
        return [f"{what}: {tokens[place]}" for what, place in zip(("begins", "ends"), self.ends, strict=True)]

    def _answer(self, target: int) -> tuple[int, Any]:
        at = self.ends[target]
        return at, lambda scores: scores[0, at, target]
