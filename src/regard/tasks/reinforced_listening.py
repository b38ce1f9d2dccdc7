"""Listening with a model that draws its choices: when to write a word down, or which frame to look at.

    objective    listening's, and what the choices learn from it (tasks.reinforced)
    metric, decoding, predict      as tasks.listening

For the online model (models.online), which writes while it hears, and for a listener with hard attention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.tasks import listening
from regard.tasks.listening import Listening
from regard.tasks.parts import vocabulary
from regard.tasks.reinforced import Reinforce, Reinforced


@dataclass(frozen=True)
class Config(listening.Config):
    """Listening, and how its choices are taught."""

    reinforce: Reinforce = field(default_factory=Reinforce)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> ReinforcedListening:
        """The task on these data; with the vocabulary in the folder where one is given, else that of the data."""
        return ReinforcedListening(self, data, vocabulary(folder), seed)


class ReinforcedListening(Reinforced, Listening):
    """What the training loop trains; measured, saved and used as any listener."""
