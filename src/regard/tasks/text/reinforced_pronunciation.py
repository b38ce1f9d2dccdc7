"""Pronunciation with a stochastic model: it samples which letter to attend to, or when to emit a phoneme.

    objective    that of pronunciation, plus a policy-gradient loss of the choices (tasks.reinforce)
    metric, decoding, predict      as tasks.text.pronunciation

For hard attention (``model.aligner=hard``) and for the online model (models.online_alignment).
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.tasks.reinforce import ReinforceConfigMixin, ReinforceMixin
from regard.tasks.text import pronunciation
from regard.tasks.text.pronunciation import Pronunciation


class ReinforcedPronunciation(ReinforceMixin, Pronunciation):
    """Train a stochastic pronunciation model; evaluation and prediction are those of `Pronunciation`."""


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, pronunciation.Config):
    """Settings of pronunciation and of the policy gradient."""

    makes = ReinforcedPronunciation
