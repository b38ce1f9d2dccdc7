"""Listening with a model that draws its choices: when to write a word down, or which frame to look at.

    objective    listening's, and what the choices learn from it (tasks.reinforced)
    metric, decoding, predict      as tasks.listening

For the online model (models.online), which writes while it hears, and for a listener with hard attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.tasks import listening
from regard.tasks.listening import Listening
from regard.tasks.reinforced import Reinforced, Taught


class ReinforcedListening(Reinforced, Listening):
    """What the training loop trains; measured, saved and used as any listener."""


@dataclass(frozen=True)
class Config(Taught, listening.Config):
    """Listening, and how its choices are taught."""

    makes = ReinforcedListening
