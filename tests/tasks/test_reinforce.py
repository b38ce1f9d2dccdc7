"""The laws of learning from choices, against every alignment written out."""

from itertools import product

import pytest
import torch
from torch import nn

from regard.attention.aligners.hard import collect_choices
from regard.core.errors import BadInput, RegardError, UnknownName
from regard.core.layer_state import PassState
from regard.data.text.parallel_corpus import PairBatch
from regard.losses.reinforce_baselines import LearnedBaseline, MovingAverageBaseline
from regard.models.rnnsearch import Config, RNNSearch
from regard.tasks.exact_alignments import enumerate_alignments
from regard.tasks.reinforce import (
    CREDIT_ASSIGNMENTS,
    PolicyGradientLoss,
    Reinforce,
    reward_to_go,
    stochastic_modules,
    token_log_probs,
    total_reward,
)
from tests.long_params import rest_is_long

SOURCE, TARGET = torch.tensor([4, 6, 2]), torch.tensor([1, 5, 7, 2])  # three places, three tokens: 27 alignments


@pytest.fixture(autouse=True)
def _double(double):
    pass


def tiny(aligner="hard", seed=0):
    """Weights large enough that it matters where is looked."""
    torch.manual_seed(seed)
    model = RNNSearch(Config(9, width=5, hidden=4, align_width=3, readout=3, aligner=aligner))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model.train()


def gradients(value, model):
    found = torch.autograd.grad(value, list(model.parameters()), allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(model.parameters(), found, strict=True)]
    )


# -- enumeration -------------------------------------------------------------------------------------------------------


def test_alignments_are_all_there_and_their_chances_sum_to_one():
    every = enumerate_alignments(tiny(), SOURCE, TARGET)
    assert every.paths.tolist() == [list(path) for path in product(range(3), repeat=3)]
    torch.testing.assert_close(every.chances.sum(), torch.tensor(1.0))
    assert every.chances.max() < 0.9  # a real choice


def test_enumeration_is_the_model_looking_there_one_step_after_another():
    """Each alignment by hand: the decoder stepped with a context of one place."""
    model = tiny()
    every = enumerate_alignments(model, SOURCE, TARGET)
    for row in (0, 5, 13, 26):
        log_s, rewards, hidden = [], [], None
        for t, place in enumerate(every.paths[row].tolist()):
            chances, logits, hidden = looking_at(model, place, t, hidden)
            log_s.append(chances[place].log())
            rewards.append(logits.log_softmax(-1)[TARGET[t + 1]])
        torch.testing.assert_close(every.log_s[row], torch.stack(log_s))
        torch.testing.assert_close(every.rewards[row], torch.stack(rewards))


def looking_at(model, place, t=0, hidden=None):
    """One step of the decoder by hand: what it would draw from, its logits with this place read, and its state."""
    decoder = model.decoder
    begun = decoder.initial_state(*model.encode(SOURCE[None]))
    hidden = begun.hidden if hidden is None else hidden
    chances, _ = decoder.aligner.base(hidden[-1][0], begun.memory.keys)
    words, seen = decoder.embed(TARGET[None, t : t + 1]), begun.memory.values[:, place : place + 1]
    hidden = decoder.cells(decoder.cells.input_gates(words), seen, hidden)
    return chances[0, 0], decoder.output(hidden[-1][0], seen, words)[0, 0], hidden


def test_enumeration_leaves_the_model_as_it_was():
    model = tiny()
    model.decoder.aligner.eval()
    enumerate_alignments(model, SOURCE, TARGET)
    assert model.training
    assert not model.decoder.aligner.training
    with pytest.raises(BadInput, match="9 positions and 12 tokens"):
        enumerate_alignments(model, torch.full((9,), 4), torch.full((13,), 4))


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_is_below_the_likelihood(seed):
    every = enumerate_alignments(tiny(seed=seed), SOURCE, TARGET)
    assert every.bound < every.likelihood - 1e-4  # Jensen, and not by rounding
    by_hand = sum(p * r for p, r in zip(every.chances.tolist(), every.rewards.sum(1).tolist(), strict=True))
    assert every.bound.item() == pytest.approx(by_hand)


def test_the_bound_is_tight_where_the_choice_does_not_matter():
    model = tiny()
    with torch.no_grad():
        for part in (model.decoder.cells.cells[0].context_gates, model.decoder.output.readout):  # nothing of it arrives
            part.weight.zero_()
    every = enumerate_alignments(model, SOURCE, TARGET)
    torch.testing.assert_close(every.bound, every.likelihood)


def test_nwgm_is_the_softmax_of_the_expected_logits():
    """Π_i exp(n_ki)^p_i, normalised over k, with the logits n of every place of a step."""
    model = tiny()
    logits = torch.stack([looking_at(model, place)[1] for place in range(3)])  # M V
    p = looking_at(model, 0)[0]
    geometric = (logits.exp() ** p[:, None]).prod(0)
    torch.testing.assert_close(geometric / geometric.sum(), (p @ logits).softmax(-1))
    arithmetic = p @ logits.softmax(-1)
    assert (geometric / geometric.sum() - arithmetic).abs().max() > 1e-4  # another mean than the true one


# -- the gradient ------------------------------------------------------------------------------------------------------


def surrogate(every, how, chances, entropy=None):
    """The expectation over alignments of what the task climbs, for its gradient: log p(y|s) and the policy's term."""
    choices = PolicyGradientLoss(how)
    if isinstance(choices.baseline, MovingAverageBaseline):
        choices.baseline.sums = torch.tensor([-3.0, 1.0])
    total = (chances * every.rewards.sum(1)).sum()
    for row, p in enumerate(chances):
        log_s, rewards = every.log_s[row : row + 1], every.rewards[row : row + 1]
        none = torch.zeros_like(log_s)
        total = total - p * choices.loss(log_s, none, rewards, torch.ones_like(log_s, dtype=torch.bool))
    return total


@pytest.mark.parametrize("credit", ["whole", "to_go"])
@pytest.mark.parametrize("baseline", ["none", "moving_average"])
def test_the_expectation_of_the_estimate_is_the_exact_gradient(credit, baseline):
    """Not sampled: every alignment with its chance. Whatever the credit and the baseline, the mean is the same."""
    model = tiny()
    every = enumerate_alignments(model, SOURCE, TARGET)
    exact = gradients(every.bound, model)
    every = enumerate_alignments(model, SOURCE, TARGET)
    how = Reinforce(credit=credit, baseline=baseline, entropy=0.0)
    found = gradients(surrogate(every, how, every.chances.detach()), model)
    torch.testing.assert_close(found, exact)
    assert exact.abs().max() > 0.1


def test_leaving_out_one_of_two_readings_is_unbiased_too():
    model = tiny()
    exact = gradients(enumerate_alignments(model, SOURCE, TARGET).bound, model)
    every = enumerate_alignments(model, SOURCE, TARGET)
    p, choices, total = (
        every.chances.detach(),
        PolicyGradientLoss(Reinforce(baseline="leave_one_out", num_samples=2, entropy=0.0)),
        0.0,
    )
    for i, j in product(range(len(p)), repeat=2):
        rows = [i, j]
        log_s, rewards = every.log_s[rows], every.rewards[rows]
        loss = choices.loss(log_s, torch.zeros_like(log_s), rewards, torch.ones_like(log_s, dtype=torch.bool))
        total = total + p[i] * p[j] * (rewards.sum() - loss) / 2
    torch.testing.assert_close(gradients(total, model), exact)


def task_loss(model, how, many):
    """The loss of the task itself on copies of one pair."""
    from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
    from regard.tasks.reinforce import Config as TaskConfig
    from regard.tasks.reinforce import ReinforcedTranslation

    task = ReinforcedTranslation.__new__(ReinforcedTranslation)  # no data: only its loss is wanted
    task.config, task.choices, task.objective = (
        TaskConfig(label_smoothing=0.0, reinforce=how),
        PolicyGradientLoss(how),
        label_smoothed_cross_entropy,
    )
    if isinstance(task.choices.baseline, MovingAverageBaseline):
        task.choices.baseline.sums = torch.tensor([-3.0, 1.0])
    batch = PairBatch(
        SOURCE.expand(many, -1), torch.full((many,), 3), TARGET.expand(many, -1), torch.full((many,), 4)
    )  # fmt: skip
    return task.loss(model, batch)[0] / many


ESTIMATES = {
    "whole, no baseline": Reinforce(credit="whole", baseline="none", entropy=0.0),
    "whole, moving": Reinforce(credit="whole", baseline="moving_average", entropy=0.0),
    "to go, moving": Reinforce(credit="to_go", baseline="moving_average", entropy=0.0),
    "to go, others": Reinforce(credit="to_go", baseline="leave_one_out", num_samples=4, entropy=0.0),
}


@pytest.mark.parametrize("name", rest_is_long(ESTIMATES, "to go, moving", "to go, others"))
def test_the_mean_of_many_drawn_gradients_is_the_exact_one(name):
    """The task's own gradient over 40 batches of 160 draws, in standard errors away from enumeration."""
    assert abs(off(ESTIMATES[name])) < 3


def test_an_estimate_that_is_wrong_is_seen_to_be(monkeypatch):
    good = {"baseline": "leave_one_out", "num_samples": 4, "entropy": 0.0}
    assert abs(off(Reinforce(**good | {"weight": 0.0}))) > 6  # the choices are not taught
    assert abs(off(Reinforce(**good | {"weight": 0.8}))) > 6  # not enough
    monkeypatch.setitem(CREDIT_ASSIGNMENTS, "late", lambda rewards: reward_to_go(rewards) - rewards)
    assert abs(off(Reinforce(**good | {"credit": "late"}))) > 6  # a choice is not paid for its own token


def off(how, batches=40, many=160):
    """How far the mean gradient is from the exact one along the part of it that only choices can teach."""
    model = tiny()
    exact = gradients(enumerate_alignments(model, SOURCE, TARGET).bound, model)
    every = enumerate_alignments(model, SOURCE, TARGET)
    along = exact - gradients((every.chances.detach() * every.rewards.sum(1)).sum(), model)
    torch.manual_seed(5)
    found = torch.stack([-gradients(task_loss(model, how, many), model) @ along for _ in range(batches)])
    return ((found.mean() - exact @ along) / (found.std() / batches**0.5)).item()


def test_credit_is_what_it_says():
    rewards = torch.tensor([[1.0, 2.0, 4.0]])
    assert total_reward(rewards).tolist() == [[7, 7, 7]]
    assert reward_to_go(rewards).tolist() == [[7, 6, 4]]


def test_padding_is_neither_paid_nor_taught():
    how = Reinforce(baseline="moving_average", entropy=0.3)
    log_s, entropy, rewards = (torch.randn(2, 4, requires_grad=True) for _ in range(3))
    real = torch.tensor([[True, True, True, False], [True, False, False, False]])
    one, two = PolicyGradientLoss(how), PolicyGradientLoss(how)
    one.baseline.sums = two.baseline.sums = torch.tensor([-0.5, 1.0])
    loss = one.loss(log_s, entropy, rewards, real)
    loss.backward()
    assert not (log_s.grad * ~real).any()
    assert not (entropy.grad * ~real).any()
    assert rewards.grad is None  # a reward is a number here
    loud = rewards.detach() + 100.0 * ~real
    torch.testing.assert_close(two.loss(log_s, entropy, loud, real), loss)
    one.baseline.update()
    two.baseline.update()
    assert torch.equal(one.baseline.sums, two.baseline.sums)


def test_the_moving_baseline_follows_the_mean_reward_a_token():
    baseline = MovingAverageBaseline(decay=0.5)
    counts = torch.tensor([[[3.0, 2.0, 1.0]]])
    assert baseline(counts, counts).abs().max() == 0  # nothing is known yet
    for _ in range(2):  # two batches of one update
        baseline.observe(torch.tensor(-6.0), torch.tensor(3))
    assert baseline(counts, counts).abs().max() == 0  # it moves after the update alone
    baseline.update()
    torch.testing.assert_close(baseline(counts, counts), -2.0 * counts)
    baseline.observe(torch.tensor(-4.0), torch.tensor(4))
    baseline.update()
    torch.testing.assert_close(baseline.mean_reward(), torch.tensor((0.25 * -2 + 0.5 * -1) / 0.75))
    other = MovingAverageBaseline(decay=0.5)
    other.load_state_dict(baseline.state_dict())
    assert torch.equal(other.mean_reward(), baseline.mean_reward())


def test_the_weight_of_the_entropy_fades():
    choices = PolicyGradientLoss(Reinforce(entropy=1.0, final_entropy=0.1, entropy_steps=100))
    assert [choices.entropy(step) for step in (0, 50, 100, 999)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert PolicyGradientLoss(Reinforce(entropy=0.3)).entropy(10**6) == 0.3


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"credit": "whole_"}, UnknownName, "did you mean 'whole'"),
        ({"baseline": "movin"}, UnknownName, "did you mean 'moving_average'"),
        ({"baseline": "moving_average(decay=1.0)"}, RegardError, "below 1"),
        ({"baseline": "leave_one_out"}, RegardError, "at least 2"),
        ({"num_samples": 0}, RegardError, "num_samples must be at least 1, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(settings, error, said):
    with pytest.raises(error, match=said):
        PolicyGradientLoss(Reinforce(**settings))


def test_a_model_that_draws_nothing_is_refused():
    with pytest.raises(RegardError, match=r"model\.aligner=hard"):
        stochastic_modules(tiny("additive"))


def test_log_p_is_zero_where_nothing_is_wanted():
    logits, wanted = torch.randn(2, 3, 5), torch.tensor([[1, 4, -100], [0, -100, -100]])
    found = token_log_probs(logits, wanted)
    assert (found == 0).equal(wanted < 0)
    assert found[0, 1] == logits[0, 1].log_softmax(-1)[4]


@pytest.mark.long
def test_hard_attention_learns_to_write_backwards_and_looks_there():
    """The same toy as soft attention learns; here the aligner sees nothing but the rewards of its draws."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(1)
    model = RNNSearch(Config(10, width=24, hidden=24, readout=None, aligner="hard")).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    choices = PolicyGradientLoss(Reinforce(entropy=0.02, baseline="leave_one_out", num_samples=4))

    def batch(rows, n=4):
        source = torch.randint(3, 10, (rows, n))
        target = torch.cat([torch.ones(rows, 1, dtype=torch.long), source.flip(1)], 1)
        return source, target

    for _ in range(150):
        source, target = (x.repeat_interleave(4, 0) for x in batch(32))
        pass_state = PassState()
        logits = model(source, target[:, :-1], pass_state=pass_state)
        rewards = token_log_probs(logits, target[:, 1:])
        loss = -rewards.sum() + choices.loss(
            *collect_choices(pass_state)[:2], rewards, torch.ones_like(rewards, dtype=torch.bool)
        )
        optimizer.zero_grad()
        (loss / rewards.numel()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        choices.baseline.update()
    from regard.attention.capture.watch import watch

    source, target = batch(64)
    with torch.no_grad(), watch(model.eval()) as seen:
        right = model(source, target[:, :-1]).argmax(-1) == target[:, 1:]
    assert right.double().mean() > 0.9
    assert sorted(seen["decoder.aligner"].weights.unique().tolist()) == [0.0, 1.0]


def test_the_learned_baseline_follows_the_gradient_of_its_squared_error_per_token_and_leaves_the_states_alone():
    torch.manual_seed(0)
    baseline = LearnedBaseline()
    baseline.fit(3)
    nn.init.normal_(baseline.module.weight)
    states = torch.randn(2, 1, 4, 3, requires_grad=True)
    returns, counts = torch.randn(2, 1, 4), torch.tensor([4.0, 3.0, 2.0, 1.0]).expand(2, 1, 4)
    expected = baseline(returns, counts, states)
    error = baseline.error(returns[:, 0], expected[:, 0], counts[:, 0])
    error.backward()
    with torch.no_grad():
        each = states[:, 0] @ baseline.module.weight[0] + baseline.module.bias
        torch.testing.assert_close(expected[:, 0], counts[:, 0] * each)
        wrong = each - returns[:, 0] / counts[:, 0]  # of the reward per token
        torch.testing.assert_close(error.detach(), 0.5 * wrong.square().sum())
        torch.testing.assert_close(baseline.module.weight.grad, (wrong[..., None] * states[:, 0]).sum((0, 1))[None])
        torch.testing.assert_close(baseline.module.bias.grad, wrong.sum()[None])
    assert states.grad is None


def test_the_decay_of_a_moving_average_is_at_least_0_and_below_1():
    latest = MovingAverageBaseline(decay=0.0)  # remembers the latest update alone
    for total in (20.0, 6.0):
        latest.observe(torch.tensor(total), torch.tensor(3))
        latest.update()
    assert latest.mean_reward() == 2
    for decay in (-0.1, 1.0):
        with pytest.raises(RegardError, match="at least 0 and below 1"):
            MovingAverageBaseline(decay)
