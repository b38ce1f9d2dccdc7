"""The Gaussian-mixture window: its formula, and that its centres only move forward."""

import math

import pytest
import torch

from regard.attention import ALIGNERS
from regard.attention.aligners.gmm import GMMAligner
from regard.core.errors import BadInput
from regard.core.spec import build_part, resolve


@pytest.fixture(autouse=True)
def _double(double):
    pass


def test_two_steps_are_the_formula():
    aligner = GMMAligner(4, mixtures=3)
    torch.nn.init.normal_(aligner.mixture.weight)
    keys, state, kappa = aligner.keys(torch.randn(1, 6, 5)), None, [0.0] * 3
    for query in torch.randn(2, 1, 1, 4):
        weights, state = aligner(query, keys, None, state)
        raw = (query[0, 0] @ aligner.mixture.weight.T + aligner.mixture.bias).tolist()
        kappa = [k + math.exp(far) for k, far in zip(kappa, raw[6:], strict=True)]
        for u in range(1, 7):
            bells = zip(raw[:3], raw[3:6], kappa, strict=True)
            expected = sum(math.exp(a) * math.exp(-math.exp(b) * (k - u) ** 2) for a, b, k in bells)
            assert weights[0, 0, u - 1].item() == pytest.approx(expected)
        torch.testing.assert_close(aligner.centres(state)[0, 0], torch.tensor(kappa) - 1)


def test_kappa_grows_at_every_step_whatever_the_state_says():
    aligner = GMMAligner(4, mixtures=5)
    torch.nn.init.normal_(aligner.mixture.weight, std=2.0)
    keys, state, before = aligner.keys(torch.randn(2, 9, 5)), None, torch.zeros(2, 3, 5)
    for query in torch.randn(40, 2, 3, 4):
        _, state = aligner(query, keys, None, state)
        assert (state > before).all()
        before = state


@pytest.mark.parametrize("step", [0.05, 1.0, 3.0])
def test_fresh_bells_move_by_the_given_step(step):
    aligner = GMMAligner(4, step=step)
    keys, state = aligner.keys(torch.randn(1, 9, 5)), None
    for _ in range(10):
        _, state = aligner(torch.zeros(1, 1, 4), keys, None, state)
    torch.testing.assert_close(state, torch.full((1, 1, 5), 10 * step))


def test_past_the_end_there_is_nothing():
    aligner = GMMAligner(4, step=3.0)
    keys, state = aligner.keys(torch.randn(1, 9, 5)), None
    for _ in range(10):
        weights, state = aligner(torch.zeros(1, 1, 4), keys, None, state)
    assert weights.max() < 1e-12


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_a_loud_state_gives_no_nan_in_value_or_gradient(size):
    aligner = GMMAligner(4).float()
    memory, state = torch.randn(1, 9, 5).float(), None
    for _ in range(3):
        weights, state = aligner(torch.full((1, 1, 4), size).float(), aligner.keys(memory), None, state)
    weights.sum().backward()
    assert torch.isfinite(weights).all()
    assert all(torch.isfinite(p.grad).all() for p in aligner.parameters())


def test_what_is_in_the_memory_plays_no_part():
    aligner = GMMAligner(4)
    query = torch.randn(1, 2, 4)
    one, other = (aligner(query, aligner.keys(torch.randn(1, 9, 5)))[0] for _ in range(2))
    assert torch.equal(one, other)


def test_what_cannot_be_is_refused():
    for spec in ({"mixtures": 0}, {"step": 0.0}, {"step": -1.0}):
        with pytest.raises(BadInput, match="mixtures >= 1 and step > 0"):
            resolve(ALIGNERS, "gmm", "aligner")(query_width=4, **spec)
    with pytest.raises(BadInput, match="mixtures of aligner 'gmm' must be at least 1, got 0"):
        build_part(ALIGNERS, "gmm(mixtures=0)", "aligner", query_width=4)
