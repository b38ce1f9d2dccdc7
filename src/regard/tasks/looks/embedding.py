"""Looking at a text that becomes one vector: one side, its tokens between their marks."""

from __future__ import annotations

from typing import Any, ClassVar

from regard.tasks.embedder import Embedder
from regard.tasks.looks import texts
from regard.tasks.looks.reading import ReadingLook
from regard.tasks.reading import texts_of


class EmbeddingLook(ReadingLook):
    """A text and the length of its vector."""

    task = "embedding"
    takes: ClassVar[dict[str, Any]] = {"text": str}
    predictor: Embedder

    def read(self) -> None:
        """Read the text."""
        lines, text = texts_of([self.given["text"]]), self.predictor.text
        (ids,) = text.encode(lines)
        self._through(text.enclose(ids)[0], texts.typed(text, ids, lines[0]), lines[0])
        self.output = {"vector": [round(x, 5) for x in self.predictor(lines)[0].tolist()]}
