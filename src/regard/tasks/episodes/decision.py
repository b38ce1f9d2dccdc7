"""Acting: of what was wanted, seen and done, the next action; learned from the record of others, tried by playing.

    objective    actions: squared error, or cross-entropy where they are classes; summed over all steps of a window
                 (next states and returns may count too, with weights of their own; the paper gives them none)
    metric       loss a step; the mean return of episodes played from new beginnings, asked for the data's best
    decoding     one action after another: what was asked for, less what was got, is asked for at the next step
    predict      `Player`: wanted returns in, played episodes out

With ``wanting=False`` the same model learns without being told the return: behaviour cloning.

Chen et al.: Decision Transformer. NeurIPS 2021. arXiv:2106.01345
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.episodes import pendulum
from regard.data.episodes.pendulum_episodes import SKILLS, EpisodeBatch, EpisodeSplit, PendulumEpisodes
from regard.tasks.base import SplitTask

EVAL_BATCH_SIZE = 512  # windows measured at a time


@dataclass(frozen=True)
class Config:
    """What is learned of the record, and how often the outcome is tried."""

    condition_on_return: bool = True  # False: the model is not told the return (behaviour cloning)
    states: float = field(0.0, low=0)  # weight of the squared error of the next state
    returns: float = field(0.0, low=0)  # and of the return that is left after the action
    episodes: int = 50  # played to score a model

    def quick(self) -> Config:
        """A few episodes."""
        return replace(self, episodes=3)

    def build(self, data: PendulumEpisodes, seed: int = 0, folder: Path | None = None) -> ReturnConditionedControl:
        """The task on these data."""
        return ReturnConditionedControl(self, data, seed)


class ReturnConditionedControl(SplitTask[EpisodeSplit]):
    """What the training loop trains: the loss, the windows it is measured on, and how well the model plays."""

    headline = "return"  # reached when the data's best is asked for; higher is better
    unit = "actions"
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
        """A model's Config with what only the data know: the sizes of states and actions, the length of an episode."""
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
        """The number of actions."""
        return batch.returns.numel()

    def loss(
        self, model: nn.Module, batch: EpisodeBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss summed over the actions of the batch; parts that weigh nothing are in the record all the same."""
        said = model(*model_inputs(batch, self.config.condition_on_return))
        actions = self.objective(said.actions, batch.actions)
        states = _squared_error(said.states[:, :-1], batch.states[:, 1:])
        returns = F.mse_loss(said.returns[:, :-1].float(), scale_returns(batch.returns[:, 1:]), reduction="sum")
        total = actions + self.config.states * states + self.config.returns * returns
        parts = {"loss": total, "actions": actions, "states": states, "returns": returns}
        return total, {name: x.detach() for name, x in parts.items()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data, condition_on_return = self.data, self.config.condition_on_return
        return {
            "name": self.name,
            "context": data.context_length,
            "levels": data.torque_levels,
            "condition_on_return": condition_on_return,
        }

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        returns, d = self.dataset("train").returns[:, 0], self.data
        actions = f"{d.torque_levels} torques" if d.torque_levels else "any torque"
        return (
            f"pendulum, {len(returns):,} episodes of {pendulum.EPISODE_STEPS} actions ({actions}), returns "
            f"{returns.mean():.1f} on average, {returns.max():.1f} at best; {d.batch_size} windows of {d.context_length} a batch"
        )

    @property
    def best(self) -> float:
        """The highest return in the training data."""
        return float(self.dataset("train").returns[:, 0].max())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (an action's, on the record), actions; from effort 1
        return, the mean of the episodes it plays from that part's beginnings when the data's best is asked for."""
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
            reached = self.play(model, split, [self.best] * self.config.episodes)
            result["return"] = float(reached.mean())
        return result

    def play(self, model: nn.Module, split: str, target_returns: Sequence[float]) -> Float[Tensor, " B"]:
        """The return of an episode for each wanted one."""
        player = DecisionAgent(
            model, self.data.context_length, self.data.torque_levels, self.config.condition_on_return
        )
        return player(target_returns, self.data.initial_states(split, len(target_returns))).rewards.sum(1)

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: the loss; for wanted returns over the range of the data
        (its deciles, and its best), the mean that was reached and its standard deviation over episodes; the mean and
        the best of the data themselves, and what each kind of controller reached in them."""
        if search:
            raise BadInput(f"nothing is searched for when acting; leave out {', '.join(search)}")
        train, n = self.dataset("train"), self.config.episodes
        returns = train.returns[:, 0]
        levels = (
            [float(x) for x in torch.quantile(returns, torch.linspace(0.1, 0.9, 5))]
            if self.config.condition_on_return
            else []
        )
        rows = []
        for target_returns in (*levels, self.best):
            reached = self.play(model, split, [target_returns] * n)
            rows.append(
                {"target_return": target_returns, "return": float(reached.mean()), "return_std": float(reached.std())}
            )
        by_skill = {name: float(returns[train.skill == i].mean()) for i, name in enumerate(SKILLS)}
        result = self.evaluate(model, split, effort=0) | {"return": rows[-1]["return"], "rollouts": rows}
        data = {"data_mean": float(returns.mean()), "data_best": self.best, "data_by_skill": by_skill}
        return result | data | {"split": self.data.split(split), "episodes": n}


class Rollouts(NamedTuple):
    """Episodes that were played."""

    states: Float[Tensor, "B T S"]
    actions: Tensor  # B T A, or classes B T
    rewards: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]  # asked for at each step


class DecisionAgent:
    """A Decision Transformer that acts in its world: ``trace_search([60.0, 20.0])`` gives an episode for each wanted return."""

    def __init__(self, model: nn.Module, context: int = 20, levels: int = 0, condition_on_return: bool = True) -> None:
        self.model, self.context, self.levels, self.condition_on_return = (
            model.eval(),
            context,
            levels,
            condition_on_return,
        )
        self.world = PendulumEpisodes(torque_levels=levels, context_length=context)

    @torch.no_grad()
    def __call__(self, target_returns: Sequence[float], initial_states: Float[Tensor, "B 2"] | None = None) -> Rollouts:
        """Play an episode for each wanted return, from these beginnings (angle and speed), else from those of a seed.

        What is wanted is lowered by what was got after every action. The model sees the last `context` steps.
        """
        if not len(target_returns):
            raise BadInput("no return is wanted, so there is nothing to play; give at least one")
        device = next(self.model.parameters()).device
        place = self.world.initial_states("test", len(target_returns)) if initial_states is None else initial_states
        if len(place) != len(target_returns):
            raise BadInput(f"{len(target_returns)} returns are wanted of {len(place)} beginnings; give one of each")
        place = place.to(device)
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
            returns[:, t], states[:, t] = left, pendulum.observe(place)
            past = slice(max(0, t + 1 - self.context), t + 1)
            history = EpisodeBatch(*(x[:, past] for x in (returns, states, actions, timesteps)))
            said = self.model(*model_inputs(history, self.condition_on_return)).actions[:, -1]
            actions[:, t] = said.argmax(-1) if self.levels else said
            place, rewards[:, t] = pendulum.step(place, self.world.torque(actions[:, t]))
            left = left - rewards[:, t]
        return Rollouts(states, actions, rewards, returns)


def model_inputs(batch: EpisodeBatch, condition_on_return: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a model is given: returns as a share of the highest there can be, or none of them."""
    returns = scale_returns(batch.returns) if condition_on_return else torch.zeros_like(batch.returns)
    return returns, batch.states, batch.actions, batch.timesteps


def scale_returns(returns: Tensor) -> Tensor:
    """Returns as a share of the highest there can be."""
    return returns / pendulum.EPISODE_STEPS


def _squared_error(said: Tensor, true: Tensor) -> Float[Tensor, ""]:
    """The squared error, a mean over the numbers of a vector, summed over all else."""
    return (said.float() - true).square().mean(-1).sum()


def _action_cross_entropy(said: Tensor, true: Tensor) -> Float[Tensor, ""]:
    """Cross-entropy, summed."""
    return F.cross_entropy(said.flatten(0, -2).float(), true.flatten(), reduction="sum")
