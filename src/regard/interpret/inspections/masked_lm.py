"""Inspection of a masked language model: one axis, the tokens with special tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from regard.core.errors import BadInput
from regard.interpret.inspection import Position
from regard.interpret.inspections.encoder_base import EncoderInspection
from regard.tasks.text.encoder_base import check_texts
from regard.tasks.text.masked_lm import FillMask


class MaskedLMInspection(EncoderInspection):
    """A text with [MASK] and the words predicted for it; relevance is for one of the masks."""

    task = "masked_lm"
    input_types: ClassVar[dict[str, Any]] = {"text": str, "top_k": int}
    predictor: FillMask

    def read(self) -> None:
        top_k = self.inputs.get("top_k", 5)
        if top_k < 1:
            raise BadInput(f"top_k must be at least 1, got {top_k}")
        (line,) = check_texts([self.inputs["text"]])
        ids = self.predictor.encode(line)
        positions: list[Position] = [{"text": list(span)} for span in self.predictor.spans(line)]
        answer = self._through(ids, positions, line)
        logits = answer[0] if isinstance(answer, tuple) else answer
        self.at = [i for i, token in enumerate(ids) if token == self.predictor.text.mask]
        guesses = self.predictor._guesses(logits[0, self.at].float().softmax(-1), top_k) if self.at else []
        self.best = [each[0].token for each in guesses]
        self.output = {
            "masks": [
                {"token": at, "guesses": [{"word": g.word, "probability": g.probability} for g in each]}
                for at, each in zip(self.at, guesses, strict=True)
            ]
        }

    @property
    def targets(self) -> list[str]:
        """The likeliest word of every mask."""
        return self.predictor.text.pieces(self.best)

    def _answer(self, target: int) -> tuple[int, Any]:
        at, word = self.at[target], self.best[target]
        return at, lambda answer: (answer[0] if isinstance(answer, tuple) else answer)[0, at, word]
