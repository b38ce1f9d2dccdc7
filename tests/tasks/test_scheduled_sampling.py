"""Scheduled sampling: schedules as they are written, tokens drawn as often as they say, Transformers refuse."""

import math
from itertools import pairwise

import pytest
import torch

from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.models import build
from regard.tasks.scheduled_sampling import SAMPLING_SCHEDULES, ScheduledSampling

GIVEN = {
    "always": lambda i: 1.0,
    "linear(steps=100, min_probability=0.25)": lambda i: max(0.25, 1 - 0.0075 * i),
    "exponential(k=0.99)": lambda i: 0.99**i,
    "inverse_sigmoid(k=20)": lambda i: 20 / (20 + math.exp(i / 20)),
}


def test_every_schedule_is_looked_at():
    assert {spec.split("(")[0] for spec in GIVEN} == set(SAMPLING_SCHEDULES)


@pytest.mark.parametrize("spec", GIVEN)
def test_a_schedule_is_its_formula_and_only_goes_down(spec):
    chances = [float(ScheduledSampling(spec).probability(torch.tensor(i))) for i in (0, 1, 10, 50, 100, 1000, 10**6)]
    assert chances[:6] == pytest.approx([GIVEN[spec](i) for i in (0, 1, 10, 50, 100, 1000)])
    assert all(0 <= b <= a <= 1 for a, b in pairwise(chances))


def test_as_many_tokens_are_its_own_as_the_schedule_says():
    model, target = build("rnnsearch", size="tiny", vocab=20), torch.zeros(200, 50, dtype=torch.long)
    forcing = ScheduledSampling("linear(steps=100, min_probability=0.2)")
    for step, wanted in ((50, 0.4), (100, 0.8), (500, 0.8)):
        own = forcing(model, target, step, torch.Generator().manual_seed(1))["sampling_mask"]
        assert own.double().mean().item() == pytest.approx(wanted, abs=0.02)
    again = forcing(model, target, 500, torch.Generator().manual_seed(1))["sampling_mask"]
    assert torch.equal(own, again)
    assert not forcing(model, target, 0, None)["sampling_mask"].any()
    assert ScheduledSampling()(model, target, 500, None) == {}


def test_a_model_that_reads_whole_targets_refuses():
    model, target = build("transformer", size="tiny", vocab=20), torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(Unsupported, match=r"task\.teacher_forcing=always"):
        ScheduledSampling("exponential(k=0.9)")(model, target, 5, None)
    assert ScheduledSampling()(model, target, 5, None) == {}


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        ("lineal(steps=3)", UnknownName, "did you mean 'linear'"),
        ("linear", RegardError, "needs steps"),
        ("linear(steps=0)", BadInput, "at least 1"),
        ("exponential(k=1.5)", BadInput, "above 0 and below 1"),
        ("inverse_sigmoid(k=0)", BadInput, "must be at least 1"),
    ],
)
def test_what_is_no_schedule_is_said(spec, error, said):
    with pytest.raises(error, match=said):
        ScheduledSampling(spec)
