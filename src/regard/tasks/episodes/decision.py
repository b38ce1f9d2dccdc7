"""Return-conditioned control: from target returns, states and actions so far, the next action; learned from recorded
episodes, evaluated by acting.

    input        Number (the return to reach)
    output       Episode
    loss         actions: squared error, or cross-entropy where they are classes; summed over all steps of a window
                 (next states and returns may be added, with weights; the paper uses none)
    metrics      mean return of episodes from new initial states, with the data's best return as the target; loss
    decoding     one action after another: the target return is lowered by every reward

With ``condition_on_return=False`` the same model learns without the return: behaviour cloning.

Chen et al.: Decision Transformer. NeurIPS 2021. arXiv:2106.01345
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.episodes import pendulum
from regard.data.episodes.pendulum_episodes import SKILLS, EpisodeBatch, EpisodeSplit, PendulumEpisodes
from regard.metrics.base import Metric, loss_metric
from regard.modalities.episode import Episode
from regard.modalities.number import Number
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor

MAX_RETURN = 1e6  # far beyond any return; larger ones overflow in the model
EVAL_BATCH_SIZE = 512  # windows in one batch of an evaluation


@dataclass(frozen=True)
class Config:
    """Training options."""

    condition_on_return: bool = True  # False: behaviour cloning
    states: float = field(0.0, low=0)  # weight of the squared error of the next state
    returns: float = field(0.0, low=0)  # weight of the squared error of the return-to-go after the action
    episodes: int = 50  # episodes of an evaluation

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, episodes=3)

    def build(self, data: PendulumEpisodes, seed: int = 0, folder: Path | None = None) -> ReturnConditionedControl:
        """Return the task on these data."""
        return ReturnConditionedControl(self, data, seed)


class ReturnConditionedControl(SplitTask[EpisodeSplit]):
    """Train and evaluate a Decision Transformer."""

    metrics = (
        Metric("return", "return", low=None),  # mean, with the data's best return as the target
        loss_metric("per action"),
    )
    unit = "actions"
    split_size = "episodes"
    name = "decision"
    ragged = False
    data: PendulumEpisodes

    def __init__(self, config: Config, data: PendulumEpisodes, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config
        self.objective: Callable[[Tensor, Tensor], Tensor] = (
            _action_cross_entropy if data.torque_levels else _squared_error
        )

    def fit(self, config: Any) -> Any:
        levels = self.data.torque_levels
        kind = "discrete" if levels else config.action_type if config.action_type != "discrete" else "tanh"
        actions = levels or pendulum.ACTION_SIZE
        return replace(
            config,
            state_dim=pendulum.STATE_SIZE,
            action_dim=actions,
            action_type=kind,
            length=pendulum.EPISODE_STEPS,
        )

    def count(self, batch: EpisodeBatch) -> int:
        return batch.returns.numel()

    def loss(
        self, model: nn.Module, batch: EpisodeBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss summed over the actions of the batch, and its parts, also those of weight 0."""
        said, pass_state = call_with_state(model, *model_inputs(batch, self.config.condition_on_return))
        actions = self.objective(said.actions, batch.actions)
        states = _squared_error(said.states[:, :-1], batch.states[:, 1:])
        returns = F.mse_loss(said.returns[:, :-1].float(), scale_returns(batch.returns[:, 1:]), reduction="sum")
        total = actions + self.config.states * states + self.config.returns * returns
        parts = {"loss": total, "actions": actions, "states": states, "returns": returns}
        parts = {name: x.detach() for name, x in parts.items()}
        return self.with_layer_losses(total, batch, pass_state), parts

    def describe(self) -> dict[str, Any]:
        data, condition_on_return = self.data, self.config.condition_on_return
        return {
            "name": self.name,
            "context": data.context_length,
            "levels": data.torque_levels,
            "condition_on_return": condition_on_return,
        }

    def card(self) -> str:
        returns, d = self.dataset("train").returns[:, 0], self.data
        actions = f"{d.torque_levels} torques" if d.torque_levels else "any torque"
        return (
            f"pendulum, {len(returns):,} episodes of {pendulum.EPISODE_STEPS} actions ({actions}), returns "
            f"{returns.mean():.1f} on average, {returns.max():.1f} at best; "
            f"{d.batch_size} windows of {d.context_length} a batch"
        )

    @property
    def best(self) -> float:
        """The highest return in the training data."""
        return float(self.dataset("train").returns[:, 0].max())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Evaluate a model on a split. Keys: loss (per action, on recorded episodes), actions; from effort 1 return,
        the mean over episodes from the split's initial states, with the data's best return as the target."""
        device = next(model.parameters()).device
        model.eval()
        total = torch.zeros((), dtype=torch.float64, device=device)
        actions = 0
        for batch in self.dataset(split).eval_batches(EVAL_BATCH_SIZE):
            actions += self.count(batch)
            batch = batch.to(device)
            total += self.objective(model(*model_inputs(batch, self.config.condition_on_return)).actions, batch.actions)
        result: dict[str, Any] = {"loss": float(total) / actions, "actions": actions}
        if effort:
            reached = self.rollout_returns(model, split, [self.best] * self.config.episodes)
            result["return"] = float(reached.mean())
        return result

    def rollout_returns(self, model: nn.Module, split: str, target_returns: Sequence[float]) -> Float[Tensor, " B"]:
        """Return the return of an episode for each target return."""
        agent = DecisionAgent(model, self.data.context_length, self.data.torque_levels, self.config.condition_on_return)
        found = agent.rollout(target_returns, self.data.initial_states(split, len(target_returns)))
        return torch.stack([episode.rewards for episode in found]).sum(1)

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Evaluate a model on a split: the loss; for target returns over the range of the data (its deciles and its
        best) the mean return and its standard deviation over episodes; and mean, best and mean by controller of the
        recorded returns."""
        if search:
            raise BadInput(f"acting has no search; leave out {', '.join(search)}")
        train, n = self.dataset("train"), self.config.episodes
        returns = train.returns[:, 0]
        levels = (
            [float(x) for x in torch.quantile(returns, torch.linspace(0.1, 0.9, 5))]
            if self.config.condition_on_return
            else []
        )
        rows = []
        for target_returns in (*levels, self.best):
            reached = self.rollout_returns(model, split, [target_returns] * n)
            rows.append(
                {"target_return": target_returns, "return": float(reached.mean()), "return_std": float(reached.std())}
            )
        by_skill = {name: float(returns[train.skill == i].mean()) for i, name in enumerate(SKILLS)}
        result = self.evaluate(model, split, effort=0) | {"return": rows[-1]["return"], "rollouts": rows}
        data = {"data_mean": float(returns.mean()), "data_best": self.best, "data_by_skill": by_skill}
        return result | data | {"split": self.data.split(split), "episodes": n}


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of a rollout."""

    seed: int = field(0, low=0, high=9999, help="number of the initial state")


class DecisionAgent(Predictor):
    """A Decision Transformer that acts in its environment.

    act = regard.load("runs/pendulum")
    act(60.0)                                        an Episode with 60 as the target return
    act.rollout([60.0, 20.0], initial_states)        from given initial states (angle and speed, B 2)
    """

    inputs = {"target_return": Number}  # noqa: RUF012
    outputs = Episode
    options = Options
    examples = (60.0, 20.0)

    def __init__(self, model: nn.Module, context: int = 20, levels: int = 0, condition_on_return: bool = True) -> None:
        self.model, self.context, self.levels = model.eval(), context, levels
        self.condition_on_return = condition_on_return
        self.environment = PendulumEpisodes(torque_levels=levels, context_length=context)

    def predict(self, batch: list[Any], options: Any) -> list[Episode]:
        first = self.environment.initial_states("test", options.seed + 1)[-1:]
        return self.rollout(batch, first.expand(len(batch), -1)) if batch else []

    @torch.no_grad()
    def rollout(self, target_returns: Sequence[float], initial_states: Float[Tensor, "B 2"]) -> list[Episode]:
        """Return an episode for each target return and initial state (angle and speed).

        The target return is lowered by every reward. The model reads the last `context` steps.
        """
        for number, wanted in enumerate(target_returns, 1):
            if not abs(wanted) <= MAX_RETURN:
                raise BadInput(
                    f"target_return {number} must be from -{MAX_RETURN:g} to {MAX_RETURN:g}, got {wanted:g}."
                )
        if not len(target_returns):
            raise BadInput("a rollout needs at least one target return, got none")
        if len(initial_states) != len(target_returns):
            raise BadInput(
                f"{len(target_returns)} target returns have {len(initial_states)} initial states; give one of each"
            )
        device = next(self.model.parameters()).device
        place = initial_states.to(device)
        b, steps = len(target_returns), pendulum.EPISODE_STEPS
        returns, states = (
            torch.zeros(b, steps, device=device),
            torch.zeros(b, steps, pendulum.STATE_SIZE, device=device),
        )
        actions = torch.zeros(b, steps, dtype=torch.long, device=device)
        actions = actions if self.levels else torch.zeros(b, steps, pendulum.ACTION_SIZE, device=device)
        rewards, left = torch.zeros(b, steps, device=device), torch.tensor(list(target_returns), device=device)
        timesteps = torch.arange(steps, device=device).expand(b, steps)
        for t in range(steps):
            check_cancelled()
            returns[:, t], states[:, t] = left, pendulum.observe(place)
            past = slice(max(0, t + 1 - self.context), t + 1)
            history = EpisodeBatch(*(x[:, past] for x in (returns, states, actions, timesteps)))
            predicted = self.model(*model_inputs(history, self.condition_on_return)).actions[:, -1]
            actions[:, t] = predicted.argmax(-1) if self.levels else predicted
            place, rewards[:, t] = pendulum.step(place, self.environment.torque(actions[:, t]))
            left = left - rewards[:, t]
        return [Episode(*row) for row in zip(states.cpu(), actions.cpu(), rewards.cpu(), returns.cpu(), strict=True)]


def model_inputs(batch: EpisodeBatch, condition_on_return: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the inputs of a model: returns as a share of the highest possible, or zeros."""
    returns = scale_returns(batch.returns) if condition_on_return else torch.zeros_like(batch.returns)
    return returns, batch.states, batch.actions, batch.timesteps


def scale_returns(returns: Tensor) -> Tensor:
    """Return returns as a share of the highest possible."""
    return returns / pendulum.EPISODE_STEPS


def _squared_error(said: Tensor, true: Tensor) -> Float[Tensor, ""]:
    """Return the squared error, averaged over the last dimension and summed over the others."""
    return (said.float() - true).square().mean(-1).sum()


def _action_cross_entropy(said: Tensor, true: Tensor) -> Float[Tensor, ""]:
    """Return the summed cross-entropy."""
    return F.cross_entropy(said.flatten(0, -2).float(), true.flatten(), reduction="sum")
