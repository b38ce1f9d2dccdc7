"""Inspection of a text-to-text model: axes as for translation; sentinels are where they were typed."""

from __future__ import annotations

from typing import Any, ClassVar

from regard.interpret.inspections.translation import TranslationInspection
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tokens.sentinels import offsets_with_sentinels


class TextToTextInspection(TranslationInspection):
    """A prompt and its answer; `target_text` gives another answer."""

    task = "text_to_text"
    input_types: ClassVar[dict[str, Any]] = {"text": str, "target_text": str, "beam_size": int}
    predictor: TextToTextGenerator

    def _places(self, ids: list[int], line: str) -> list[Any]:
        """As they were cut, a sentinel by its name."""
        return [{"text": [begin, end]} for begin, end in offsets_with_sentinels(self.predictor.text, line)]
