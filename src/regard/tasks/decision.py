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

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data import pendulum
from regard.data.control import SKILLS, Control, Episodes, Moves
from regard.tasks.parts import Parted

ROWS = 512  # windows measured at a time


@dataclass(frozen=True)
class Config:
    """What is learned of the record, and how often the outcome is tried."""

    wanting: bool = True  # False: the model is not told the return (behaviour cloning)
    states: float = 0.0  # weight of the squared error of the next state
    returns: float = 0.0  # and of the return that is left after the action
    episodes: int = 50  # played to score a model

    def quick(self) -> Config:
        """A few episodes."""
        return replace(self, episodes=3)

    def build(self, data: Control, seed: int = 0, folder: Path | None = None) -> Decision:
        """The task on these data."""
        return Decision(self, data, seed)


class Decision(Parted[Episodes]):
    """What the training loop trains: the loss, the windows it is measured on, and how well the model plays."""

    headline = "return"  # reached when the data's best is asked for; higher is better
    unit = "actions"
    name = "decision"
    ragged = False
    data: Control

    def __init__(self, config: Config, data: Control, seed: int = 0) -> None:
        super().__init__(data, seed)
        self.config = config
        self.objective: Callable[[Tensor, Tensor], Tensor] = _chosen if data.levels else _squared

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the sizes of states and actions, the length of an episode."""
        levels = self.data.levels
        kind = "classes" if levels else config.kind if config.kind != "classes" else "tanh"
        actions = levels or pendulum.ACTIONS
        return replace(config, states=pendulum.STATES, actions=actions, kind=kind, length=pendulum.STEPS)

    def count(self, batch: Moves) -> int:
        """The number of actions."""
        return batch.returns.numel()

    def loss(
        self, model: nn.Module, batch: Moves, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss summed over the actions of the batch; parts that weigh nothing are in the record all the same."""
        said = model(*asked(batch, self.config.wanting))
        actions = self.objective(said.actions, batch.actions)
        states = _squared(said.states[:, :-1], batch.states[:, 1:])
        returns = F.mse_loss(said.returns[:, :-1].float(), scaled(batch.returns[:, 1:]), reduction="sum")
        total = actions + self.config.states * states + self.config.returns * returns
        parts = {"loss": total, "actions": actions, "states": states, "returns": returns}
        return total, {name: x.detach() for name, x in parts.items()}

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data, wanting = self.data, self.config.wanting
        return {"name": self.name, "context": data.context, "levels": data.levels, "wanting": wanting}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        returns, d = self.part("train").returns[:, 0], self.data
        actions = f"{d.levels} torques" if d.levels else "any torque"
        return (
            f"pendulum, {len(returns):,} episodes of {pendulum.STEPS} actions ({actions}), returns "
            f"{returns.mean():.1f} on average, {returns.max():.1f} at best; {d.rows} windows of {d.context} a batch"
        )

    @property
    def best(self) -> float:
        """The highest return in the training data."""
        return float(self.part("train").returns[:, 0].max())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (an action's, on the record), actions; from effort 1
        return, the mean of the episodes it plays from that part's beginnings when the data's best is asked for."""
        device = next(model.parameters()).device
        model.eval()
        total = torch.zeros((), dtype=torch.float64, device=device)
        actions = 0
        for batch in self.part(split).in_order(ROWS):
            actions += self.count(batch)
            batch = batch.to(device)
            total += self.objective(model(*asked(batch, self.config.wanting)).actions, batch.actions)
        result: dict[str, Any] = {"loss": float(total) / actions, "actions": actions}
        if effort:
            reached = self.play(model, split, [self.best] * self.config.episodes)
            result["return"] = float(reached.mean())
        return result

    def play(self, model: nn.Module, split: str, wanted: Sequence[float]) -> Float[Tensor, " B"]:
        """The return of an episode for each wanted one."""
        player = Player(model, self.data.context, self.data.levels, self.config.wanting)
        return player(wanted, self.data.beginnings(split, len(wanted))).rewards.sum(1)

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: the loss; for wanted returns over the range of the data
        (its deciles, and its best), the mean that was reached and its standard deviation over episodes; the mean and
        the best of the data themselves, and what each kind of controller reached in them."""
        if search:
            raise BadInput(f"nothing is searched for when acting; leave out {', '.join(search)}")
        train, n = self.part("train"), self.config.episodes
        returns = train.returns[:, 0]
        levels = [float(x) for x in torch.quantile(returns, torch.linspace(0.1, 0.9, 5))] if self.config.wanting else []
        rows = []
        for wanted in (*levels, self.best):
            reached = self.play(model, split, [wanted] * n)
            rows.append({"wanted": wanted, "reached": float(reached.mean()), "spread": float(reached.std())})
        by_skill = {name: float(returns[train.skill == i].mean()) for i, name in enumerate(SKILLS)}
        result = self.evaluate(model, split, effort=0) | {"return": rows[-1]["reached"], "played": rows}
        data = {"data_mean": float(returns.mean()), "data_best": self.best, "data_by_skill": by_skill}
        return result | data | {"split": self.data.split(split), "episodes": n}


class Played(NamedTuple):
    """Episodes that were played."""

    states: Float[Tensor, "B T S"]
    actions: Tensor  # B T A, or classes B T
    rewards: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]  # asked for at each step


class Player:
    """A Decision Transformer that acts in its world: ``play([60.0, 20.0])`` gives an episode for each wanted return."""

    def __init__(self, model: nn.Module, context: int = 20, levels: int = 0, wanting: bool = True) -> None:
        self.model, self.context, self.levels, self.wanting = model.eval(), context, levels, wanting
        self.world = Control(levels=levels, context=context)

    @torch.no_grad()
    def __call__(self, wanted: Sequence[float], beginnings: Float[Tensor, "B 2"] | None = None) -> Played:
        """Play an episode for each wanted return, from these beginnings (angle and speed), else from those of a seed.

        What is wanted is lowered by what was got after every action. The model sees the last `context` steps.
        """
        if not len(wanted):
            raise BadInput("no return is wanted, so there is nothing to play; give at least one")
        device = next(self.model.parameters()).device
        place = self.world.beginnings("test", len(wanted)) if beginnings is None else beginnings
        if len(place) != len(wanted):
            raise BadInput(f"{len(wanted)} returns are wanted of {len(place)} beginnings; give one of each")
        place = place.to(device)
        b, steps = len(wanted), pendulum.STEPS
        returns, states = torch.zeros(b, steps, device=device), torch.zeros(b, steps, pendulum.STATES, device=device)
        actions = torch.zeros(b, steps, dtype=torch.long, device=device)
        actions = actions if self.levels else torch.zeros(b, steps, pendulum.ACTIONS, device=device)
        rewards, left = torch.zeros(b, steps, device=device), torch.tensor(list(wanted), device=device)
        timesteps = torch.arange(steps, device=device).expand(b, steps)
        for t in range(steps):
            returns[:, t], states[:, t] = left, pendulum.seen(place)
            past = slice(max(0, t + 1 - self.context), t + 1)
            history = Moves(*(x[:, past] for x in (returns, states, actions, timesteps)))
            said = self.model(*asked(history, self.wanting)).actions[:, -1]
            actions[:, t] = said.argmax(-1) if self.levels else said
            place, rewards[:, t] = pendulum.act(place, self.world.torque(actions[:, t]))
            left = left - rewards[:, t]
        return Played(states, actions, rewards, returns)


def asked(batch: Moves, wanting: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a model is given: returns as a share of the highest there can be, or none of them."""
    returns = scaled(batch.returns) if wanting else torch.zeros_like(batch.returns)
    return returns, batch.states, batch.actions, batch.timesteps


def scaled(returns: Tensor) -> Tensor:
    """Returns as a share of the highest there can be."""
    return returns / pendulum.STEPS


def _squared(said: Tensor, true: Tensor) -> Float[Tensor, ""]:
    """The squared error, a mean over the numbers of a vector, summed over all else."""
    return (said.float() - true).square().mean(-1).sum()


def _chosen(said: Tensor, true: Tensor) -> Float[Tensor, ""]:
    """Cross-entropy, summed."""
    return F.cross_entropy(said.flatten(0, -2).float(), true.flatten(), reduction="sum")
