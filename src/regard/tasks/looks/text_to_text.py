"""Looking at a prompt and its answer: the same sides as a translation has; sentinels stand where they were typed."""

from __future__ import annotations

from typing import Any, ClassVar

from regard.tasks.looks.translation import TranslationLook
from regard.tasks.text_writer import TextToText
from regard.tokens.sentinels import spans


class TextToTextLook(TranslationLook):
    """A prompt and its answer; `answer` is another one to look at."""

    task = "text_to_text"
    takes: ClassVar[dict[str, Any]] = {"text": str, "answer": str, "beams": int}
    own = "answer"
    predictor: TextToText

    def _places(self, ids: list[int], line: str) -> list[Any]:
        """As they were cut, a sentinel by its name."""
        return [{"text": [begin, end]} for begin, end in spans(self.predictor.text, line)]
