"""Acting: what is learned from the record, and that playing asks for what is left of the wanted return."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.episodes import pendulum
from regard.data.episodes.pendulum_episodes import PendulumEpisodes
from regard.modalities import Episode
from regard.models.decision_transformer import Config, DecisionTransformer, Predictions
from regard.tasks.episodes import decision
from regard.training import train
from regard.training.recipe import load_recipe

SMALL = Config(state_dim=1, action_dim=1, width=16, heads=2, layers=1, dropout=0.0, attention_dropout=0.0)


def task(levels=0, **settings):
    return decision.Config(episodes=4, **settings).build(
        PendulumEpisodes(episodes=20, context_length=6, batch_size=5, torque_levels=levels), seed=1
    )


def model(of):
    made = DecisionTransformer(of.fit(SMALL)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def test_the_loss_is_that_of_actions_alone_unless_asked_for_more():
    of = task()
    m, batch = model(of), next(of.batches().start(StreamPosition())).batch
    said = m(batch.returns / 80, batch.states, batch.actions, batch.timesteps)
    total, parts = of.loss(m, batch)
    torch.testing.assert_close(total, F.mse_loss(said.actions, batch.actions, reduction="sum"))
    assert of.count(batch) == 30
    more = task(states=0.5, returns=2.0)
    states = F.mse_loss(said.states[:, :-1], batch.states[:, 1:], reduction="sum") / 3
    returns = F.mse_loss(said.returns[:, :-1], batch.returns[:, 1:] / 80, reduction="sum")
    torch.testing.assert_close(more.loss(m, batch)[0], total + 0.5 * states + 2 * returns)
    total.backward()
    assert all(p.grad is not None for p in m.parameters())  # also those that weigh nothing: processes wait for them
    assert not any(x.requires_grad for x in parts.values())


def test_actions_that_are_classes_are_learned_by_cross_entropy():
    of = task(levels=3)
    m, batch = model(of), next(of.batches().start(StreamPosition())).batch
    said = m(batch.returns / 80, batch.states, batch.actions, batch.timesteps).actions
    assert said.shape == (5, 6, 3)
    expected = F.cross_entropy(said.flatten(0, 1), batch.actions.flatten(), reduction="sum")
    torch.testing.assert_close(of.loss(m, batch)[0], expected)


def test_a_clone_is_not_told_the_return():
    of = task(condition_on_return=False)
    m, batch = model(of), next(of.batches().start(StreamPosition())).batch
    other = replace(batch, returns=batch.returns + 5)
    torch.testing.assert_close(of.loss(m, batch)[0], of.loss(m, other)[0] * 1.0)
    low, high = (of.rollout_returns(m, "test", [wanted] * 2) for wanted in (0.0, 60.0))
    torch.testing.assert_close(low, high)


class Controller(torch.nn.Module):
    """Plays as the pendulum's own controller does, up to the height that the wanted return says; records its input."""

    def __init__(self):
        super().__init__()
        self.anchor, self.asked = torch.nn.Parameter(torch.zeros(())), []

    def forward(self, returns, states, actions, timesteps):
        self.asked.append((returns, timesteps))
        cosine, sine, speed = states.unbind(-1)
        place = torch.stack([torch.atan2(sine, cosine), 8 * speed], -1)
        height = torch.where(self.asked[0][0][:, :1] > 0.5, 1.0, 0.3)
        torque = pendulum.swing_up_torque(place.flatten(0, 1), height.expand_as(speed).flatten())
        return Predictions(torque.view(*speed.shape, 1), states, returns)


def test_playing_asks_for_what_is_left():
    controller = Controller()
    agent = decision.DecisionAgent(controller, context=5)
    episodes = agent.rollout([60.0, 10.0, 60.0], agent.environment.initial_states("test", 3))
    found = Episode(*(torch.stack(each) for each in zip(*(vars(one).values() for one in episodes), strict=True)))
    returns = found.rewards.sum(1)
    assert returns[0] > 55 > 15 > returns[1]
    torch.testing.assert_close(found.returns[:, 1:], found.returns[:, :1] - found.rewards[:, :-1].cumsum(1))
    assert [x[0].shape[1] for x in controller.asked[:7]] == [1, 2, 3, 4, 5, 5, 5]
    last = controller.asked[-1]
    torch.testing.assert_close(last[0] * 80, found.returns[:, -5:])
    assert last[1][0].tolist() == [75, 76, 77, 78, 79]


@pytest.mark.parametrize("levels", [0, 3])
def test_an_episode_does_not_depend_on_its_company(levels):
    of = task(levels)
    play = decision.DecisionAgent(model(of), 6, levels)
    places = of.data.initial_states("test", 3)
    whole = play.rollout([50.0, 10.0, 30.0], places)
    (single,) = play.rollout([10.0], places[1:2])
    torch.testing.assert_close(whole[1].rewards, single.rewards, rtol=1e-4, atol=1e-4)
    together, alone = play([50.0, 10.0, 30.0], seed=2), play(10.0, seed=2)
    torch.testing.assert_close(together[1].rewards, alone.rewards, rtol=1e-4, atol=1e-4)
    assert not torch.equal(play(10.0, seed=3).states[0], alone.states[0])


def test_it_is_measured_on_the_record_and_by_playing():
    of = task()
    m = model(of)
    quick, whole = of.evaluate(m, effort=0), of.evaluate(m, effort=2)
    batches = list(of.dataset("val").eval_batches(512))
    assert quick["actions"] == sum(b.returns.numel() for b in batches) == 10 * 13 * 6
    assert "return" not in quick
    assert whole["return"] == pytest.approx(float(of.rollout_returns(m, "val", [of.best] * 4).mean()))
    report = of.report(m)
    assert [row["target_return"] for row in report["rollouts"]] == sorted(
        row["target_return"] for row in report["rollouts"]
    )
    assert report["rollouts"][-1]["target_return"] == report["data_best"] == pytest.approx(of.best)
    assert report["data_by_skill"]["expert"] > report["data_mean"] > report["data_by_skill"]["random"]
    with pytest.raises(BadInput, match="beam_size"):
        of.report(m, beam_size=4)


@pytest.mark.parametrize("levels", [0, 3])
def test_a_run_goes_on_exactly_and_what_it_saved_plays(tmp_path, levels):
    recipe = load_recipe("decision_transformer_pendulum")
    recipe = replace(
        recipe,
        model=SMALL,
        task=decision.Config(episodes=2),
        data=PendulumEpisodes(episodes=20, context_length=6, batch_size=5, torque_levels=levels),
        train=replace(
            recipe.train, steps=8, eval_interval=4, save_interval=4, log_interval=2, warmup_steps=2, schedule="constant"
        ),
    )
    train(recipe, tmp_path / "once")
    train(replace(recipe, train=replace(recipe.train, steps=4)), tmp_path / "twice")
    train(recipe, tmp_path / "twice", resume=True)
    players = [regard.load(tmp_path / name / "model") for name in ("once", "twice")]
    for name, value in players[0].model.state_dict().items():
        assert torch.equal(value, players[1].model.state_dict()[name]), name
    assert isinstance(players[0], decision.DecisionAgent)
    assert (players[0].levels, players[0].context) == (levels, 6)
    assert [one.rewards.shape for one in players[0]([40.0, 20.0])] == [(80,), (80,)]
    regard.save(players[0], tmp_path / "again")
    assert torch.equal(regard.load(tmp_path / "again")(40.0).states, players[0](40.0).states)


def test_what_cannot_be_played_is_refused():
    play = decision.DecisionAgent(model(task()), 6)
    assert play([]) == []
    with pytest.raises(BadInput, match="at least one"):
        play.rollout([], torch.zeros(0, 2))
    with pytest.raises(BadInput, match="2 target returns have 1 initial states"):
        play.rollout([1.0, 2.0], torch.zeros(1, 2))
    for wrong in (float("nan"), "sixty", True):
        with pytest.raises(BadInput, match="Expected a finite number"):
            play(wrong)
