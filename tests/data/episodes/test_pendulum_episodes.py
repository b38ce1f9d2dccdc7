"""The pendulum and its recorded episodes."""

import math

import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.episodes import pendulum
from regard.data.episodes.pendulum_episodes import SKILLS, PendulumEpisodes


def play(height, episodes=20):
    place = pendulum.initial_states(episodes, torch.Generator().manual_seed(0))
    rewards = []
    for _ in range(pendulum.EPISODE_STEPS):
        place, reward = pendulum.step(place, pendulum.swing_up_torque(place, torch.full((episodes,), height)))
        rewards.append(reward)
    return torch.stack(rewards, 1)


def test_free_pendulum_conserves_energy_and_period():
    """Small swings take 2π / √15 seconds, that is 16.2 actions."""
    place, angles = torch.tensor([[math.pi + 0.1, 0.0]], dtype=torch.float64), []
    for _ in range(160):
        place, _ = pendulum.step(place, torch.zeros(1, dtype=torch.float64))
        angles.append(float(place[0, 0]) - math.pi)
    turns = [i for i in range(1, 160) if angles[i - 1] < 0 <= angles[i]]
    assert (turns[-1] - turns[0]) / (len(turns) - 1) == pytest.approx(2 * math.pi / math.sqrt(15) / 0.1, rel=0.03)
    assert max(angles[-20:]) == pytest.approx(0.1, rel=0.1)


def test_motor_cannot_lift_the_pendulum_directly():
    place = torch.tensor([[math.pi, 0.0]])
    heights = []
    for _ in range(pendulum.EPISODE_STEPS):
        place, reward = pendulum.step(place, torch.tensor([5.0]))  # no more than 1 counts
        heights.append(float(reward))
    assert max(heights) < 0.5


def test_the_expert_controller_swings_up_and_balances():
    assert play(1.0)[:, -20:].min() > 0.99


def test_returns_grow_with_the_height_a_controller_swings_to():
    returns = [float(play(height).sum(1).mean()) for height in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert returns == sorted(returns)
    assert returns[0] < 1
    assert returns[-1] > 55


def test_episodes_are_deterministic_and_splits_differ():
    data = PendulumEpisodes(episodes=30)
    one, two = data.load("train"), PendulumEpisodes(episodes=30).load("train")
    assert one.fingerprint() == two.fingerprint() != PendulumEpisodes(episodes=30, seed=1).load("train").fingerprint()
    assert len(data.load("val")) == len(data.load("test")) == 10
    assert not torch.equal(data.load("val").states, data.load("test").states)
    assert not torch.equal(data.initial_states("val", 5), data.initial_states("test", 5))


def test_episodes_have_every_skill_with_different_returns():
    episodes = PendulumEpisodes(episodes=200).load("train")
    returns = [float(episodes.returns[episodes.skill == i, 0].mean()) for i in range(len(SKILLS))]
    assert (episodes.skill.bincount() / 200).tolist() == pytest.approx([0.3, 0.5, 0.2])
    assert returns[0] < returns[1] < returns[2]


@pytest.mark.parametrize("levels", [0, 5])
def test_window_is_part_of_an_episode(levels):
    data = PendulumEpisodes(episodes=12, torque_levels=levels, context_length=7, batch_size=5)
    episodes = data.load("train")
    batch = episodes.collate(torch.tensor([0, 3 * episodes.windows + 9]))
    torch.testing.assert_close(batch.states[1], episodes.states[3, 9:16])
    torch.testing.assert_close(batch.returns[1, 0], episodes.rewards[3, 9:].sum())
    assert batch.timesteps[1].tolist() == list(range(9, 16))
    place = torch.stack([torch.atan2(batch.states[..., 1], batch.states[..., 0]), 8 * batch.states[..., 2]], -1)
    moved, reward = pendulum.step(place[:, 0], data.torque(batch.actions[:, 0]))  # the record obeys the world
    torch.testing.assert_close(pendulum.observe(moved), batch.states[:, 1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(batch.returns[:, 0] - reward, batch.returns[:, 1], rtol=1e-4, atol=1e-4)
    if levels:
        assert batch.actions.dtype == torch.long
        assert set(episodes.actions.unique().tolist()) == set(range(levels))


def test_epoch_has_every_window_once():
    data = PendulumEpisodes(episodes=10, context_length=77, batch_size=5)
    stream, seen = data.load("train").stream(seed=3).start(StreamPosition()), []
    for _ in range(8):
        item = next(stream)
        assert item.count == 5 * 77
        seen += [(int(t[0]), float(s[0, 0])) for t, s in zip(item.batch.timesteps, item.batch.states, strict=True)]
    assert len(set(seen)) == 40
    assert item.next_position == StreamPosition(1, 0)


@pytest.mark.parametrize(
    ("settings", "message"), [({"context_length": 81}, "80 actions"), ({"torque_levels": 1}, "no choice")]
)
def test_invalid_episode_settings_are_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        PendulumEpisodes(**settings)
