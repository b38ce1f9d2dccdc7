"""REINFORCE: train models that sample where to attend (hard attention) or when to emit a token.

    L_s = E_s[ Σ_t r_t ] ≤ log p(y),   r_t = log p(y_t | s, y_<t)

    ∂L_s ≈ 1/N Σ_n [ ∂ Σ_t r_t  +  λ_r Σ_t (R_t - b_t) ∂ log p(s_t)  +  λ_e Σ_t ∂ H[s_t] ]

    credit      R_t      whole: Σ_t' r_t', as in the lecture;  to_go: Σ_t'≥t r_t', without the rewards before the choice
    baseline    b_t      none;  moving_average: the mean reward per token of past updates, times the tokens in R_t;
                         others: the mean R_t of the other samples of the same input (needs num_samples > 1);
                         learned: a linear map of the state before the choice, fitted to R_t during training

No baseline depends on the choice it is subtracted for, so it changes the variance of the gradient and not its mean
(benchmarks/reinforce.py). The moving average is part of the task's state, and the learned baseline is a module: both
are in the checkpoint.

Xu et al. 2015, arXiv:1502.03044; Ba, Mnih, Kavukcuoglu 2015, arXiv:1412.7755; Mnih, Gregor 2014, arXiv:1402.0030
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from regard.attention.aligners.hard import ForcedChoices, collect_choices
from regard.core.config import field
from regard.core.errors import RegardError, UnknownName, did_you_mean
from regard.core.layer_state import PassState
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part
from regard.losses.reinforce_baselines import BASELINES, Baseline
from regard.tasks.base import load_tokenizer
from regard.tasks.text import translation
from regard.tasks.text.translation import Translation, shift_targets


@dataclass(frozen=True)
class Reinforce:
    """Settings of the policy gradient."""

    weight: float = field(1.0, low=0)  # λ_r
    entropy: float = field(0.01, low=0)  # λ_e of the first update
    final_entropy: float = field(0.0, low=0)  # λ_e after `entropy_steps`
    entropy_steps: int = field(0, low=0)  # updates in which λ_e changes linearly; 0: it stays
    credit: str = "to_go"  # or whole
    baseline: str = "moving_average"  # a spec: none, moving_average(decay=0.9), others, learned
    num_samples: int = 1  # N samples of each input


class PolicyGradientLoss:
    """The policy-gradient loss, with its baseline."""

    def __init__(self, how: Reinforce) -> None:
        self.how = how
        if how.credit not in CREDIT_ASSIGNMENTS:
            raise UnknownName(f"no credit is called '{how.credit}'; {did_you_mean(how.credit, CREDIT_ASSIGNMENTS)}")
        if how.num_samples < 1:
            raise RegardError(f"num_samples must be at least 1, got {how.num_samples}")
        self.credit = CREDIT_ASSIGNMENTS[how.credit]
        self.baseline: Baseline = build_part(BASELINES, how.baseline, "baseline", num_samples=how.num_samples)

    def entropy(self, step: int | Tensor) -> float | Tensor:
        """Return λ_e of an update."""
        how = self.how
        if not how.entropy_steps:
            return how.entropy
        progress = torch.as_tensor(step / how.entropy_steps).clamp(max=1.0)
        return how.entropy + (how.final_entropy - how.entropy) * progress

    def loss(
        self,
        log_s: Float[Tensor, "B T"],
        entropy: Float[Tensor, "B T"],
        rewards: Float[Tensor, "B T"],
        real: Bool[Tensor, "B T"],
        step: int | Tensor = 0,
        states: Float[Tensor, "B T F"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the term to add to the negative log-likelihood, summed over samples; those of an input are adjacent.

        `real` is False for choices in the padding. `states` are those before the choices, for a learned baseline.
        """
        rewards = (rewards.detach() * real).to(log_s.dtype)
        counts = self.credit(real.to(rewards.dtype))  # rewards in each return
        returns = self.credit(rewards)
        each = (-1, self.how.num_samples, real.shape[1])
        expected = self.baseline(returns.view(each), counts.view(each), states).view_as(returns)
        self.baseline.observe(rewards.sum(), real.sum())
        objective = self.how.weight * (returns - expected.detach()) * log_s + self.entropy(step) * entropy
        return -(objective * real).sum() + self.baseline.error(returns, expected, counts)


# -- credit ------------------------------------------------------------------------------------------------------------


def total_reward(rewards: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the sum of all rewards, for every choice."""
    return rewards.sum(-1, keepdim=True).expand_as(rewards)


def reward_to_go(rewards: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the sum of the rewards from each choice on."""
    return rewards.flip(-1).cumsum(-1).flip(-1)


CREDIT_ASSIGNMENTS: dict[str, Callable[[Tensor], Tensor]] = {"whole": total_reward, "to_go": reward_to_go}


# -- the task ----------------------------------------------------------------------------------------------------------


class ReinforceMixin:
    """Adds the policy-gradient loss to a task whose batches are source, source lengths, target, target lengths."""

    config: Any
    objective: Callable[[Tensor, Tensor, float], Tensor]

    def __init__(self, config: Any, *rest: Any) -> None:
        if getattr(config, "teacher_forcing", "always") != "always":
            raise RegardError("REINFORCE needs teacher forcing; leave task.teacher_forcing=always")
        self.choices = PolicyGradientLoss(config.reinforce)
        super().__init__(config, *rest)  # type: ignore[call-arg]

    def loss(
        self, model: nn.Module, batch: Any, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return both terms, averaged over the samples of each input; the part "loss" is the first term."""
        many = self.choices.how.num_samples
        given, batch = batch, batch if many == 1 else type(batch)(*(x.repeat_interleave(many, 0) for x in batch))
        pass_state = PassState()
        logits = self.decoder_logits(model, given, batch, pass_state)
        wanted = shift_targets(batch)
        nll = self.objective(logits, wanted, self.config.label_smoothing) / many
        stochastic_modules(model)
        log_s, entropy, queries = collect_choices(pass_state)
        states = queries if self.choices.baseline.module is not None else None
        policy = self.choices.loss(log_s, entropy, token_log_probs(logits, wanted), wanted >= 0, step, states) / many
        mean_entropy = (entropy.detach() * (wanted >= 0)).sum() / many
        total = self.with_layer_losses(nll + policy, given, pass_state)  # type: ignore[attr-defined]
        return total, {"loss": nll.detach(), "entropy": mean_entropy}

    def decoder_logits(self, model: nn.Module, given: Any, batch: Any, pass_state: PassState) -> Float[Tensor, "B T V"]:
        """Return the logits of a batch; `given` is the batch before its inputs were repeated for several samples."""
        source, lengths = given[:2] if getattr(model, "encodes_source_once", False) else batch[:2]
        target, target_lengths = batch[2:]
        found: Tensor = model(source, target[:, :-1], lengths, target_lengths - 1, pass_state=pass_state)
        return found

    def fit(self, config: Any) -> Any:
        self.choices.baseline.fit(getattr(config, "hidden", None) or config.width)
        fitted: Any = super().fit(config)  # type: ignore[misc]
        return fitted

    def after_update(self, model: nn.Module, step: int) -> None:
        self.choices.baseline.update()

    def modules(self) -> dict[str, nn.Module]:
        learned = self.choices.baseline.module
        return {} if learned is None else {"baseline": learned}

    def state_dict(self) -> dict[str, Any]:
        return {"baseline": self.choices.baseline.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.choices.baseline.load_state_dict(state["baseline"])


@dataclass(frozen=True)
class ReinforceConfigMixin:
    """Adds the settings of the policy gradient to the Config of such a task; `makes` is the task."""

    reinforce: Reinforce = Reinforce()
    makes: ClassVar[Callable[..., Any]]

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> Any:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return type(self).makes(self, data, load_tokenizer(folder), seed)


class ReinforcedTranslation(ReinforceMixin, Translation):
    """Train a translation model with hard attention; evaluation and prediction are those of `Translation`."""


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, translation.Config):
    """Settings of translation and of the policy gradient."""

    makes = ReinforcedTranslation


def stochastic_modules(model: nn.Module) -> list[Any]:
    """Return the modules of a model that sample choices; raise an error if there are none."""
    found = [part for part in model.modules() if isinstance(part, ForcedChoices)]
    if not found:
        raise RegardError("this model samples no choices; set model.aligner=hard, or use the task without REINFORCE")
    return found


def token_log_probs(logits: Float[Tensor, "B T V"], wanted: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the log-probability of each target; 0 in the padding."""
    wide = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    loss = nn.functional.cross_entropy(wide, wanted.flatten(), ignore_index=-100, reduction="none")
    return -loss.view_as(wanted)
