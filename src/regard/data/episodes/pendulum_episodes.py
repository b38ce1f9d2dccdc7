"""Offline episodes of a pendulum (pendulum.py) by controllers of very different skill.

    random    a new random torque at every second action                                   3 in 10 episodes
    medium    swings up to a random height from 0 to 1                                     5
    expert    swings up and balances                                                       2

A quarter of the actions of the latter two is random as well, so that the data show how to recover.

A row is a window of `context_length` actions of an episode: return-to-go, state and action at each. Nothing is read
from disk: episodes are generated, always the same for a seed. Each split has its own episodes and initial states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.batching import RowBatches, mix_seed
from regard.data.episodes import pendulum

SPLITS = ("train", "val", "test")
# share of the episodes, range of heights (from, to), share of random actions
SKILLS = {"random": (0.3, 0.0, 0.0, 1.0), "medium": (0.5, 0.0, 1.0, 0.25), "expert": (0.2, 1.0, 1.0, 0.25)}
RANDOM_ACTION_REPEAT = 2  # actions for which a random torque is held


@dataclass(frozen=True, eq=False)
class EpisodeBatch(TensorBatch):
    """A batch of windows of episodes."""

    returns: Float[Tensor, "B T"]  # return-to-go, before the action
    states: Float[Tensor, "B T S"]
    actions: Tensor  # B T A, or class numbers B T
    timesteps: Int[Tensor, "B T"]


@dataclass(frozen=True)
class PendulumEpisodes(Dataset):
    """Settings of the dataset."""

    episodes: int = 1000  # training episodes; a tenth as many for validation and for test
    torque_levels: int = field(0, low=0)  # number of discrete torques from -1 to 1; 0: continuous
    context_length: int = 20  # actions per row
    batch_size: int = 64  # rows per batch over all processes
    seed: int = field(0, low=-(2**63), below=2**64)  # of the episodes

    def __post_init__(self) -> None:
        if not 1 <= self.context_length <= pendulum.EPISODE_STEPS:
            raise BadInput(
                f"data.context_length must be 1 to {pendulum.EPISODE_STEPS}, the 80 actions of an episode; got "
                f"{self.context_length}"
            )
        if self.torque_levels == 1:
            raise BadInput("data.torque_levels=1 leaves no choice; give 2 or more torques, or 0 for any")

    quick_settings = {"episodes": 20, "context_length": 6, "batch_size": 8}  # noqa: RUF012

    def title(self) -> str:
        return "control"

    def load(self, split: str) -> EpisodeSplit:
        """Generate the episodes of a split."""
        part = self.split(split)
        many = self.episodes if part == "train" else max(10, self.episodes // 10)
        return EpisodeSplit(self, *_generate_episodes(many, self.torque_levels, self._generator(part)))

    def initial_states(self, split: str, episodes: int) -> Float[Tensor, "B 2"]:
        """Return initial states for evaluating a policy; none of them is in the training data."""
        return pendulum.initial_states(episodes, self._generator(f"{self.split(split)}, played"))

    def torque(self, actions: Tensor) -> Float[Tensor, " B"]:
        """Return the torque of actions B A, or of classes B."""
        if not self.torque_levels:
            return actions[..., 0]
        return actions * (2.0 / (self.torque_levels - 1)) - 1

    def _generator(self, name: str) -> torch.Generator:
        digest = blake2b(f"{self.seed}/{name}".encode(), digest_size=7).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


class EpisodeSplit(DatasetSplit[EpisodeBatch]):
    """Episodes of one length."""

    def __init__(
        self, settings: PendulumEpisodes, states: Tensor, actions: Tensor, rewards: Tensor, skill: Tensor
    ) -> None:
        self.settings, self.states, self.actions, self.rewards = settings, states, actions, rewards  # B T ...
        self.skill = skill  # B: which of SKILLS
        self.returns = rewards.flip(1).cumsum(1).flip(1)
        self.windows = rewards.shape[1] - settings.context_length + 1

    def __len__(self) -> int:
        return len(self.states)

    def contents(self) -> Iterable[Tensor]:
        return self.states, self.actions, self.rewards

    def order(self, seed: int, epoch: int) -> RowBatches:
        """Return every window once."""
        return RowBatches(len(self) * self.windows, self.settings.batch_size, mix_seed(seed, epoch))

    def count(self, batch: EpisodeBatch) -> int:
        return batch.returns.numel()

    def eval_batches(self, rows: int) -> Iterator[EpisodeBatch]:
        """Yield every episode in consecutive windows."""
        starts = torch.arange(0, self.windows, self.settings.context_length)
        windows = (torch.arange(len(self))[:, None] * self.windows + starts).flatten()
        for batch_windows in windows.split(rows):
            yield self.collate(batch_windows)

    def collate(self, windows: Int[Tensor, " B"]) -> EpisodeBatch:
        """Return these windows, numbered through all episodes."""
        episode, start = windows // self.windows, windows % self.windows
        timesteps = start[:, None] + torch.arange(self.settings.context_length)
        index = episode[:, None], timesteps
        return EpisodeBatch(self.returns[index], self.states[index], self.actions[index], timesteps)


def _generate_episodes(episodes: int, levels: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return states B T S, actions B T A (or classes B T), rewards B T, and the skill of each episode."""
    shares = torch.tensor([share for share, *_ in SKILLS.values()])
    skill = torch.searchsorted(shares.cumsum(0), (torch.arange(episodes) + 0.5) / episodes)
    _, low, high, random_share = torch.tensor(list(SKILLS.values()))[skill].unbind(-1)
    height = low + (high - low) * torch.rand(episodes, generator=generator)
    state, random_torque = pendulum.initial_states(episodes, generator), torch.zeros(episodes)
    states, actions, rewards = [], [], []
    for step in range(pendulum.EPISODE_STEPS):
        if step % RANDOM_ACTION_REPEAT == 0:
            random_torque = 2 * torch.rand(episodes, generator=generator) - 1
            is_random = torch.rand(episodes, generator=generator) < random_share
        torque = torch.where(is_random, random_torque, pendulum.swing_up_torque(state, height))
        action = torque[:, None]
        if levels:
            action = ((torque + 1) / 2 * (levels - 1)).round().long()
            torque = action * (2.0 / (levels - 1)) - 1
        states.append(pendulum.observe(state))
        actions.append(action)
        state, reward = pendulum.step(state, torque)
        rewards.append(reward)
    return torch.stack(states, 1), torch.stack(actions, 1), torch.stack(rewards, 1), skill
