"""Pronunciation with a model that draws its choices: which letter to look at, or when to write a sound.

    objective    pronunciation's, and what the choices learn from it (tasks.reinforce)
    metric, decoding, predict      as tasks.text.pronunciation

For hard attention (``model.aligner=hard``) and for the online model (models.online).
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.tasks.reinforce import ReinforceConfigMixin, ReinforceMixin
from regard.tasks.text import pronunciation
from regard.tasks.text.pronunciation import Pronunciation


class ReinforcedPronunciation(ReinforceMixin, Pronunciation):
    """What the training loop trains; measured, saved and used as any model that pronounces."""


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, pronunciation.Config):
    """Pronunciation, and how its choices are taught."""

    makes = ReinforcedPronunciation
