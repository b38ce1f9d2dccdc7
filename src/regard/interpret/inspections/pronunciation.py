"""Inspection of pronunciation: letters as the source, phonemes as the target."""

from __future__ import annotations

from typing import Any

from regard.interpret.inspections.translation import TranslationInspection
from regard.tasks.text.pronunciation import Pronouncer
from regard.tasks.text.translation import clean_line


class PronunciationInspection(TranslationInspection):
    """A word and its phonemes; `target_text` gives other phonemes, such as "HH AH L OW"."""

    task = "pronunciation"
    predictor: Pronouncer

    def _shown(self, line: str) -> str:
        """The word as the model reads it: no capitals, accents or hyphens."""
        return self.predictor._spelled(clean_line(line, 1))

    def _places(self, ids: list[int], line: str) -> list[Any]:
        """A token a letter."""
        return [{"text": [at, at + 1]} for at in range(len(ids))]
