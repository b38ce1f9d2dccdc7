"""Text classification with a stochastic encoder: it samples which tokens attend to which.

    objective    that of classification, plus a policy-gradient loss of the choices (tasks.reinforce)
    reward       log p(label | text, choices), one for all choices of a text
    metric, predict      as tasks.text.classification

For the encoder with predicted edges (models.sac).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.aligners.hard import collect_choices
from regard.core.shapes import Float, Tensor
from regard.data.text.labeled_text import TextBatch
from regard.tasks.base import call_with_state
from regard.tasks.reinforce import ReinforceConfigMixin, ReinforceMixin, stochastic_modules
from regard.tasks.text import classification
from regard.tasks.text.classification import TextClassification


class ReinforcedClassification(ReinforceMixin, TextClassification):
    """Train a stochastic text classifier; evaluation and prediction are those of `TextClassification`."""

    objective: Callable[..., Tensor]

    def loss(
        self, model: nn.Module, batch: TextBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return both terms, averaged over the samples of each text; the part "loss" is the first term."""
        stochastic_modules(model)
        many = self.choices.how.num_samples
        given, batch = batch, batch if many == 1 else type(batch)(*(x.repeat_interleave(many, 0) for x in batch))
        logits, pass_state = call_with_state(model, batch.tokens, batch.segments, batch.lengths)
        logits, smoothing = logits.float(), self.config.label_smoothing
        nll = self.objective(logits, batch.labels, reduction="sum", label_smoothing=smoothing) / many
        found = collect_choices(pass_state)
        log_s, entropy = (x.sum(1, keepdim=True) for x in (found.log_probs, found.entropy))  # B 1
        rewards = -F.cross_entropy(logits, batch.labels, reduction="none")[:, None]
        states = found.queries.mean(1, keepdim=True) if self.choices.baseline.module is not None else None
        policy = self.choices.loss(log_s, entropy, rewards, torch.ones_like(rewards, dtype=torch.bool), step, states)
        total = self.with_layer_losses(nll + policy / many, given, pass_state)
        return total, {"loss": nll.detach(), "entropy": entropy.detach().sum() / many}


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, classification.Config):
    """Settings of classification and of the policy gradient."""

    makes = ReinforcedClassification
