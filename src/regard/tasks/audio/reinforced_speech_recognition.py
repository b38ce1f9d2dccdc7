"""Speech recognition with a stochastic model: it samples when to emit a word, or which frame to attend to.

    objective    that of speech recognition, plus a policy-gradient loss of the choices (tasks.reinforce)
    metric, decoding, predict      as tasks.audio.speech_recognition

For the online model (models.online_alignment), which emits words while it listens, and for hard attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.tasks.audio import speech_recognition
from regard.tasks.audio.speech_recognition import SpeechRecognition
from regard.tasks.reinforce import ReinforceConfigMixin, ReinforceMixin


class ReinforcedSpeechRecognition(ReinforceMixin, SpeechRecognition):
    """Train a stochastic speech recognizer; evaluation and prediction are those of `SpeechRecognition`."""


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, speech_recognition.Config):
    """Settings of speech recognition and of the policy gradient."""

    makes = ReinforcedSpeechRecognition
