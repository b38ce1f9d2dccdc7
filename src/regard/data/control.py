"""Offline trajectories of a pendulum (data.pendulum): what controllers of very different skill did, to learn from.

    random    torque drawn anew at every second action                                     3 in 10 episodes
    medium    swings up to a height of its own, from 0 to 1                                5
    expert    swings up and stays there                                                    2

A quarter of what the latter two do is random as well: so the record shows how to come back after a slip.

A row is a window of `context` actions out of an episode: at each the return that was still to come, the state, the
action taken. Nothing is read from a disk: episodes are made when they are asked for, always the same for a seed.

    train, val, test      episodes of their own, and beginnings of their own to be played from
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data import pendulum
from regard.data.batching import Stream, mixed
from regard.data.shards import chosen
from regard.data.shuffle import Shuffle

PARTS = ("train", "val", "test")
# share of the episodes, heights swung to (from, to), share of the actions that are random
SKILLS = {"random": (0.3, 0.0, 0.0, 1.0), "medium": (0.5, 0.0, 1.0, 0.25), "expert": (0.2, 1.0, 1.0, 0.25)}
HELD = 2  # actions for which a random torque stays


class Moves(NamedTuple):
    """A batch of windows out of episodes."""

    returns: Float[Tensor, "B T"]  # still to come, before the action
    states: Float[Tensor, "B T S"]
    actions: Tensor  # B T A, or B T whole numbers where actions are classes
    timesteps: Int[Tensor, "B T"]

    def to(self, device: torch.device | str) -> Moves:
        """The same batch on a device; from pinned memory without waiting for it."""
        return Moves(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> Moves:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return Moves(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> Moves:
        """Only the first n rows."""
        return Moves(*(x[:n] for x in self))


@dataclass(frozen=True)
class Control:
    """How many episodes, how they are cut into rows, and how many go into a batch."""

    episodes: int = 1000  # to train on; a tenth as many for validation and for test
    levels: int = 0  # actions are one of so many torques from -1 to 1; 0: any torque
    context: int = 20  # actions a row
    rows: int = 64  # in a batch, all processes together
    seed: int = 0  # of the episodes

    def __post_init__(self) -> None:
        if not 1 <= self.context <= pendulum.STEPS:
            raise BadInput(f"data.context={self.context}: an episode has {pendulum.STEPS} actions")
        if self.levels == 1:
            raise BadInput("data.levels=1 leaves no choice; give 2 or more torques, or 0 for any")

    def quick(self) -> Control:
        """A few episodes: enough to see that everything runs."""
        return replace(self, episodes=20, context=min(self.context, 6), rows=min(self.rows, 8))

    def splits(self) -> list[str]:
        """The parts there are."""
        return sorted(PARTS)

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return chosen(name, self.splits(), "control")

    def load(self, split: str) -> Episodes:
        """The episodes of a part."""
        part = self.split(split)
        many = self.episodes if part == "train" else max(10, self.episodes // 10)
        return Episodes(self, *_played(many, self.levels, self._generator(part)))

    def beginnings(self, split: str, episodes: int) -> Float[Tensor, "B 2"]:
        """Where episodes of a part begin that are to be played: none that was learned from."""
        return pendulum.begin(episodes, self._generator(f"{self.split(split)}, played"))

    def torque(self, actions: Tensor) -> Float[Tensor, " B"]:
        """What the motor does for actions B A, or for classes B."""
        if not self.levels:
            return actions[..., 0]
        return actions * (2.0 / (self.levels - 1)) - 1

    def _generator(self, name: str) -> torch.Generator:
        digest = blake2b(f"{self.seed}/{name}".encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


class Episodes:
    """Some episodes, all of one length."""

    def __init__(self, settings: Control, states: Tensor, actions: Tensor, rewards: Tensor, skill: Tensor) -> None:
        self.settings, self.states, self.actions, self.rewards = settings, states, actions, rewards  # B T ...
        self.skill = skill  # B: which of SKILLS
        self.returns = rewards.flip(1).cumsum(1).flip(1)
        self.windows = rewards.shape[1] - settings.context + 1

    def __len__(self) -> int:
        return len(self.states)

    def fingerprint(self) -> str:
        """A few letters that change when the episodes do."""
        found = blake2b(digest_size=8)
        for x in (self.states, self.actions, self.rewards):
            found.update(x.numpy().data)
        return found.hexdigest()

    def stream(self, seed: int) -> Stream[Moves]:
        """Windows without end, every one once an epoch."""
        return Stream(lambda epoch: _Epoch(self, mixed(seed, epoch)), self.collate, lambda batch: batch.returns.numel())

    def in_order(self, rows: int) -> Iterator[Moves]:
        """Every episode in windows that follow one another: for measuring."""
        starts = torch.arange(0, self.windows, self.settings.context)
        every = (torch.arange(len(self))[:, None] * self.windows + starts).flatten()
        for some in every.split(rows):
            yield self.collate(some)

    def collate(self, windows: Int[Tensor, " B"]) -> Moves:
        """These windows, numbered through all episodes."""
        episode, start = windows // self.windows, windows % self.windows
        at = start[:, None] + torch.arange(self.settings.context)
        where = episode[:, None], at
        return Moves(self.returns[where], self.states[where], self.actions[where], at)


class _Epoch:
    """The batches of one epoch; windows left over at the end wait for another."""

    def __init__(self, episodes: Episodes, key: int) -> None:
        self.rows = episodes.settings.rows
        self.shuffle = Shuffle(len(episodes) * episodes.windows, key)

    def __len__(self) -> int:
        return max(1, self.shuffle.size // self.rows)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        places = np.arange(i * self.rows, min((i + 1) * self.rows, self.shuffle.size))
        return torch.from_numpy(self.shuffle(places))


def _played(episodes: int, levels: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States B T S, actions B T A (or classes B T), rewards B T, and of which skill each episode is."""
    shares = torch.tensor([share for share, *_ in SKILLS.values()])
    skill = torch.searchsorted(shares.cumsum(0), (torch.arange(episodes) + 0.5) / episodes)
    _, low, high, slips = torch.tensor(list(SKILLS.values()))[skill].unbind(-1)
    height = low + (high - low) * torch.rand(episodes, generator=generator)
    place, drawn = pendulum.begin(episodes, generator), torch.zeros(episodes)
    states, actions, rewards = [], [], []
    for step in range(pendulum.STEPS):
        if step % HELD == 0:
            drawn = 2 * torch.rand(episodes, generator=generator) - 1
            slip = torch.rand(episodes, generator=generator) < slips
        torque = torch.where(slip, drawn, pendulum.swing(place, height))
        action = torque[:, None]
        if levels:
            action = ((torque + 1) / 2 * (levels - 1)).round().long()
            torque = action * (2.0 / (levels - 1)) - 1
        states.append(pendulum.seen(place))
        actions.append(action)
        place, reward = pendulum.act(place, torque)
        rewards.append(reward)
    return torch.stack(states, 1), torch.stack(actions, 1), torch.stack(rewards, 1), skill
