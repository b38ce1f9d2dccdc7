"""Listening with a model that draws its choices: when to write a word down, or which frame to look at.

    objective    listening's, and what the choices learn from it (tasks.reinforce)
    metric, decoding, predict      as tasks.audio.speech_recognition

For the online model (models.online), which writes while it hears, and for a listener with hard attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.tasks.audio import speech_recognition
from regard.tasks.audio.speech_recognition import SpeechRecognition
from regard.tasks.reinforce import ReinforceConfigMixin, ReinforceMixin


class ReinforcedSpeechRecognition(ReinforceMixin, SpeechRecognition):
    """What the training loop trains; measured, saved and used as any listener."""


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, speech_recognition.Config):
    """Listening, and how its choices are taught."""

    makes = ReinforcedSpeechRecognition
