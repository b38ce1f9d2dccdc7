"""Inspection of a text embedder: one axis, the tokens with special tokens."""

from __future__ import annotations

from typing import Any, ClassVar

from regard.interpret.inspections import text_axes
from regard.interpret.inspections.encoder_base import EncoderInspection
from regard.tasks.text.embedder import TextEmbedder
from regard.tasks.text.encoder_base import check_texts


class EmbeddingInspection(EncoderInspection):
    """A text and the length of its vector."""

    task = "embedding"
    input_types: ClassVar[dict[str, Any]] = {"text": str}
    predictor: TextEmbedder

    def read(self) -> None:
        """Read the text."""
        lines, text = check_texts([self.inputs["text"]]), self.predictor.text
        (ids,) = text.encode(lines)
        self._through(text.with_special_tokens(ids)[0], text_axes.input_positions(text, ids, lines[0]), lines[0])
        self.output = {"vector": [round(x, 5) for x in self.predictor(lines)[0].tolist()]}
