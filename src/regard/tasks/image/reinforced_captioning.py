"""Captioning with hard attention: at every word the model samples the one place of the picture that it looks at.

    objective    that of captioning, plus a policy-gradient loss of the places (tasks.reinforce)
    metric, decoding, predict      as tasks.image.captioning

For Show, Attend and Tell with ``model.aligner="hard(soft_fraction=0.5)"``: half of the pictures of a batch take the
expectation instead of a sample, as in the paper. The doubly stochastic penalty acts on those alone, since a sample has
no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.tasks.image import captioning
from regard.tasks.image.captioning import Captioning
from regard.tasks.reinforce import ReinforceConfigMixin, ReinforceMixin


class ReinforcedCaptioning(ReinforceMixin, Captioning):
    """Train a captioner that samples where it looks; evaluation and prediction are those of `Captioning`."""

    def decoder_logits(self, model: nn.Module, given: Any, batch: Any, pass_state: PassState) -> Float[Tensor, "B T V"]:
        target, lengths = batch.target[:, :-1], batch.target_lengths - 1
        found: Tensor = model(self.pictures(batch), target, lengths, pass_state=pass_state)
        return found


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, captioning.Config):
    """Settings of captioning and of the policy gradient."""

    makes = ReinforcedCaptioning
