"""Monotonic attention: the expected alignment against all hard paths, and the choice of eval mode."""

import itertools

import pytest
import torch

from regard.attention.aligners.monotonic import MonotonicAligner, expected_alignment


@pytest.fixture(autouse=True)
def _double(double):
    pass


def enumerated(stop):
    """The chance of stopping at each place at each step, T M, by walking every hard path there is."""
    steps, m = stop.shape
    total = torch.zeros(steps, m)
    for path in itertools.product(range(m + 1), repeat=steps):  # m: it ran past the end
        chance, at = 1.0, 0
        for step, place in enumerate(path):
            if at == m:  # past the end it stays
                chance *= float(place == m)
            elif place < at:
                chance = 0.0
            else:
                for passed in range(at, place):
                    chance *= 1 - stop[step, passed].item()
                chance *= stop[step, place].item() if place < m else 1.0
            at = place
        for step, place in enumerate(path):
            if place < m:
                total[step, place] += chance
    return total


def looped(stop, before):
    """The recurrence as the paper has it, one place after the other."""
    out, reached = [], torch.zeros(stop.shape[:-1])
    for m in range(stop.shape[-1]):
        reached = before[..., m] + (reached * (1 - stop[..., m - 1]) if m else 0)
        out.append(stop[..., m] * reached)
    return torch.stack(out, -1)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_expected_alignment_is_the_sum_over_all_hard_paths(m):
    stop = torch.rand(4, m)
    now = torch.eye(m)[:1][None]
    for step, expected in enumerate(enumerated(stop)):
        now = expected_alignment(stop[step][None, None], now)
        torch.testing.assert_close(now[0, 0], expected)


@pytest.mark.parametrize("m", [1, 2, 7, 64, 100])
def test_doubling_is_the_recurrence_in_value_and_gradient(m):
    stop, before = torch.rand(2, 3, m, requires_grad=True), torch.rand(2, 3, m, requires_grad=True)
    ours, theirs = expected_alignment(stop, before), looped(stop, before)
    torch.testing.assert_close(ours, theirs)
    seed = torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, (stop, before), seed), torch.autograd.grad(theirs, (stop, before), seed), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_float32_stays_right_where_the_closed_form_divides_by_nothing():
    stop = torch.rand(1, 1, 2000).square()
    stop[..., ::7] = 1.0  # here the closed form divides 0 by 0
    before = torch.rand(1, 1, 2000).softmax(-1)
    ours = expected_alignment(stop.float(), before.float())
    torch.testing.assert_close(ours.double(), looped(stop, before), rtol=1e-5, atol=1e-9)
    left = (1 - stop).cumprod(-1).roll(1, -1)
    left[..., 0] = 1
    closed = stop * left * (before / left).cumsum(-1)
    assert not torch.isfinite(closed).all()


def test_in_eval_mode_it_stops_at_the_first_place_that_is_more_likely_than_not():
    aligner = MonotonicAligner(4, 5, 6, offset=0.0).eval()
    memory, state, at = torch.randn(1, 8, 5), None, 0
    keys = aligner.keys(memory)
    for query in 3 * torch.randn(6, 1, 1, 4):
        weights, state = aligner(query, keys, None, state)
        hidden = torch.tanh(query[0] @ aligner.query.weight.T + memory[0] @ aligner.memory.weight.T + aligner.bias)
        direction = aligner.score.weight[0] / aligner.score.weight.norm()
        sure = torch.sigmoid(aligner.gain * hidden @ direction + aligner.offset) > 0.5
        at = next((m for m in range(at, 8) if sure[m]), 8)
        expected = torch.zeros(8)
        if at < 8:
            expected[at] = 1
        assert torch.equal(weights[0, 0], expected)


def test_once_past_the_end_it_stays_there():
    aligner = MonotonicAligner(4, 5, 6, offset=-100.0).eval()
    keys = aligner.keys(torch.randn(1, 8, 5))
    weights, state = aligner(torch.randn(1, 1, 4), keys)
    assert weights.sum() == 0
    torch.nn.init.constant_(aligner.offset, 100.0)
    assert aligner(torch.randn(1, 1, 4), keys, None, state)[0].sum() == 0
    assert aligner(torch.randn(1, 1, 4), keys, None, None)[0][0, 0, 0] == 1


def test_noise_is_drawn_in_training_only():
    aligner = MonotonicAligner(4, 5, 6)
    query, keys = torch.randn(1, 1, 4), aligner.keys(torch.randn(1, 8, 5))
    one, other = (aligner.train()(query, keys)[0] for _ in range(2))
    assert not torch.equal(one, other)
    before = torch.random.get_rng_state()
    assert torch.equal(aligner.eval()(query, keys)[0], aligner(query, keys)[0])
    assert torch.equal(torch.random.get_rng_state(), before)
    silent = MonotonicAligner(4, 5, 6, noise=0.0).train()
    assert torch.equal(silent(query, keys)[0], silent(query, keys)[0])


def test_sure_decisions_make_the_expected_alignment_the_chosen_one():
    aligner = MonotonicAligner(4, 5, 6, noise=0.0, offset=0.0)
    torch.nn.init.constant_(aligner.gain, 1e6)
    keys, states = aligner.keys(torch.randn(2, 8, 5)), [None, None]
    for query in torch.randn(5, 2, 3, 4):
        expected, states[0] = aligner.train()(query, keys, None, states[0])
        chosen, states[1] = aligner.eval()(query, keys, None, states[1])
        torch.testing.assert_close(expected, chosen)


def test_gradients_are_those_of_differences():
    aligner = MonotonicAligner(3, 4, 5, noise=0.0).train()
    query, memory = torch.randn(1, 2, 3, requires_grad=True), torch.randn(1, 4, 4, requires_grad=True)

    def second(q, h):
        keys = aligner.keys(h)
        return aligner(q, keys, None, aligner(q, keys)[1])[0]

    assert torch.autograd.gradcheck(second, (query, memory))
