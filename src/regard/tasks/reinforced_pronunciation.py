"""Pronunciation with a model that draws its choices: which letter to look at, or when to write a sound.

    objective    pronunciation's, and what the choices learn from it (tasks.reinforced)
    metric, decoding, predict      as tasks.pronunciation

For hard attention (``model.aligner=hard``) and for the online model (models.online).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from regard.data.pronounced import Pronounced
from regard.tasks import pronunciation
from regard.tasks.parts import vocabulary
from regard.tasks.pronunciation import Pronunciation
from regard.tasks.reinforced import Reinforce, Reinforced


@dataclass(frozen=True)
class Config(pronunciation.Config):
    """Pronunciation, and how its choices are taught."""

    reinforce: Reinforce = field(default_factory=Reinforce)

    def build(self, data: Pronounced, seed: int = 0, folder: Path | None = None) -> ReinforcedPronunciation:  # type: ignore[override]
        """The task on these data; with the vocabulary in the folder where one is given, else theirs."""
        return ReinforcedPronunciation(self, data, vocabulary(folder), seed)


class ReinforcedPronunciation(Reinforced, Pronunciation):
    """What the training loop trains; measured, saved and used as any model that pronounces."""
