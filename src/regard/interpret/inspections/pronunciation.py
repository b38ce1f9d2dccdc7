"""Looking at how a word is pronounced: letters on one side, sounds on the other."""

from __future__ import annotations

from typing import Any

from regard.interpret.inspections.translation import TranslationInspection
from regard.tasks.text.pronunciation import Pronouncer
from regard.tasks.text.translation import clean_line


class PronunciationInspection(TranslationInspection):
    """A word and its sounds; `target_text` are other sounds to look at, as in "HH AH L OW"."""

    task = "pronunciation"
    predictor: Pronouncer

    def _shown(self, line: str) -> str:
        """The word as the model reads it: no capitals, accents or hyphens."""
        return self.predictor._spelled(clean_line(line, 1))

    def _places(self, ids: list[int], line: str) -> list[Any]:
        """A token a letter."""
        return [{"text": [at, at + 1]} for at in range(len(ids))]
