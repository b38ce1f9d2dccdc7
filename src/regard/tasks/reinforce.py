"""Learning from choices: the part of a loss that teaches where to look when looking is a draw.

    L_s = E_s[ Σ_t r_t ] ≤ log p(y),   r_t = log p(y_t | s, y_<t)

    ∂L_s ≈ 1/N Σ_n [ ∂ Σ_t r_t  +  λ_r Σ_t (R_t - b_t) ∂ log p(s_t)  +  λ_e Σ_t ∂ H[s_t] ]

    credit      R_t      whole: Σ_t' r_t', as the lecture writes it;  to_go: Σ_t'≥t r_t', since no choice earns the past
    baseline    b_t      none;  moving: the mean reward a token of past updates, for as many tokens as R_t sums over;
                         others: the mean R_t of the other readings of the same input (needs samples > 1);
                         learned: a linear map of the state before the choice, fitted to R_t as training goes

No baseline depends on the choice it is taken off, so none of them moves the mean of the gradient, only its spread
(benchmarks/reinforce.py). The moving one changes between updates and is in the task's state, the learned one is a
module beside the model: both under exact resume.

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
    """How much choices are taught, and by what."""

    weight: float = field(1.0, low=0)  # λ_r
    entropy: float = field(0.01, low=0)  # λ_e at first
    final_entropy: float = field(0.0, low=0)  # λ_e at last
    entropy_steps: int = field(0, low=0)  # updates from the one to the other, evenly; 0: as at first all along
    credit: str = "to_go"  # or whole
    baseline: str = "moving_average"  # a spec: none, moving_average(decay=0.9), others, learned
    num_samples: int = 1  # N readings of each input


class PolicyGradientLoss:
    """The policy's part of a loss, and the baseline that lives from update to update."""

    def __init__(self, how: Reinforce) -> None:
        self.how = how
        if how.credit not in CREDIT_ASSIGNMENTS:
            raise UnknownName(f"no credit is called '{how.credit}'; {did_you_mean(how.credit, CREDIT_ASSIGNMENTS)}")
        if how.num_samples < 1:
            raise RegardError(f"samples={how.num_samples}: read every input at least once")
        self.credit = CREDIT_ASSIGNMENTS[how.credit]
        self.baseline: Baseline = build_part(BASELINES, how.baseline, "baseline", num_samples=how.num_samples)

    def entropy(self, step: int | Tensor) -> float | Tensor:
        """Return λ_e at an update."""
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
        """To be added to the negative log-likelihood, both summed over readings; those of an input stand together.

        `real` says which choices were made for something; the others are neither paid nor taught. `states` are those
        before the choices, for a baseline that is learned.
        """
        rewards = (rewards.detach() * real).to(log_s.dtype)
        counts = self.credit(real.to(rewards.dtype))  # how many rewards each choice is paid with
        paid = self.credit(rewards)
        each = (-1, self.how.num_samples, real.shape[1])
        expected = self.baseline(paid.view(each), counts.view(each), states).view_as(paid)
        self.baseline.observe(rewards.sum(), real.sum())
        taught = self.how.weight * (paid - expected.detach()) * log_s + self.entropy(step) * entropy
        return -(taught * real).sum() + self.baseline.error(paid, expected, counts)


# -- credit ------------------------------------------------------------------------------------------------------------


def total_reward(rewards: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Every choice is paid with all that was earned."""
    return rewards.sum(-1, keepdim=True).expand_as(rewards)


def reward_to_go(rewards: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """A choice is paid with what was earned from then on."""
    return rewards.flip(-1).cumsum(-1).flip(-1)


CREDIT_ASSIGNMENTS: dict[str, Callable[[Tensor], Tensor]] = {"whole": total_reward, "to_go": reward_to_go}


# -- the task ----------------------------------------------------------------------------------------------------------


class ReinforceMixin:
    """Put before a task whose batches are `Pairs` or the like: a source and its lengths, a target and its lengths. Adds
    to its loss what the choices of the model are to learn from it."""

    config: Any
    objective: Callable[[Tensor, Tensor, float], Tensor]

    def __init__(self, config: Any, *rest: Any) -> None:
        if getattr(config, "teacher_forcing", "always") != "always":
            raise RegardError("choices are taught by the target's own words: leave task.teacher_forcing=always")
        self.choices = PolicyGradientLoss(config.reinforce)
        super().__init__(config, *rest)  # type: ignore[call-arg]

    def loss(
        self, model: nn.Module, batch: Any, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Both terms, the mean over the readings of each input; "loss" is the first, of what was drawn."""
        many = self.choices.how.num_samples
        heard, batch = batch, batch if many == 1 else type(batch)(*(x.repeat_interleave(many, 0) for x in batch))
        source, lengths = heard[:2] if getattr(model, "encodes_source_once", False) else batch[:2]
        target, target_lengths = batch[2:]
        pass_state = PassState()
        logits = model(source, target[:, :-1], lengths, target_lengths - 1, pass_state=pass_state)
        wanted = shift_targets(batch)
        likely = self.objective(logits, wanted, self.config.label_smoothing) / many
        stochastic_modules(model)
        log_s, entropy, queries = collect_choices(pass_state)
        states = queries if self.choices.baseline.module is not None else None
        taught = self.choices.loss(log_s, entropy, token_log_probs(logits, wanted), wanted >= 0, step, states) / many
        seen = (entropy.detach() * (wanted >= 0)).sum() / many
        return likely + taught, {"loss": likely.detach(), "entropy": seen}

    def fit(self, config: Any) -> Any:
        """The model's Config with what only the data know; a baseline may learn from states of its width."""
        self.choices.baseline.fit(config.hidden)
        fitted: Any = super().fit(config)  # type: ignore[misc]
        return fitted

    def after_update(self, model: nn.Module, step: int) -> None:
        """The baseline moves."""
        self.choices.baseline.update()

    def modules(self) -> dict[str, nn.Module]:
        """A baseline that is learned."""
        learned = self.choices.baseline.module
        return {} if learned is None else {"baseline": learned}

    def state_dict(self) -> dict[str, Any]:
        """The baseline."""
        return {"baseline": self.choices.baseline.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self.choices.baseline.load_state_dict(state["baseline"])


@dataclass(frozen=True)
class ReinforceConfigMixin:
    """Put before the Config of such a task: how its choices are taught. `makes` is the task."""

    reinforce: Reinforce = Reinforce()
    makes: ClassVar[Callable[..., Any]]

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> Any:
        """The task on these data; with the vocabulary in the folder where one is given, else that of the data."""
        return type(self).makes(self, data, load_tokenizer(folder), seed)


class ReinforcedTranslation(ReinforceMixin, Translation):
    """Translation with a model that chooses where to look; measured, saved and used as any translator."""


@dataclass(frozen=True)
class Config(ReinforceConfigMixin, translation.Config):
    """Translation, and how its choices are taught."""

    makes = ReinforcedTranslation


def stochastic_modules(model: nn.Module) -> list[Any]:
    """The parts of a model that draw where to look."""
    found = [part for part in model.modules() if isinstance(part, ForcedChoices)]
    if not found:
        raise RegardError("this model draws no choices to be taught: set model.aligner=hard, or take the plain task")
    return found


def token_log_probs(logits: Float[Tensor, "B T V"], wanted: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Log-probability of each wanted token; zero where none is wanted."""
    wide = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    loss = nn.functional.cross_entropy(wide, wanted.flatten(), ignore_index=-100, reduction="none")
    return -loss.view_as(wanted)
