"""Schedules: where they begin, peak and end, and that they have no jumps."""

from itertools import pairwise

import pytest

from regard.training.recipe import Train
from regard.training.schedule import (
    ONE_CYCLE_START_RATIO,
    ONE_CYCLE_WARMUP_FRACTION,
    SCHEDULES,
    WSD_DECAY_FRACTION,
    learning_rate_factor,
)

ENDING = ["cosine", "linear", "wsd", "one_cycle"]
STRAIGHT = [name for name in SCHEDULES if name != "one_cycle"]


def every(schedule, warmup=100, steps=1000, min_ratio=0.1):
    return [learning_rate_factor(schedule, n, warmup, steps, min_ratio) for n in range(1, steps + 1)]


@pytest.mark.parametrize("schedule", STRAIGHT)
def test_warm_up_is_a_straight_line_to_the_peak(schedule):
    assert [learning_rate_factor(schedule, n, 10, 100) for n in (1, 5, 10)] == pytest.approx([0.1, 0.5, 1.0])


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_the_peak_is_one_and_stands_at_the_end_of_the_warm_up(schedule):
    rates = every(schedule)
    assert max(rates) == pytest.approx(1)
    assert rates[99] == pytest.approx(1)
    assert min(rates) > 0


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_there_are_no_jumps(schedule):
    rates = every(schedule)
    largest = max(abs(a - b) for a, b in pairwise(rates))
    assert largest < (0.07 if schedule == "wsd" else 0.02)  # 1 - √ begins steeply


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_after_the_peak_no_rate_rises(schedule):
    after = every(schedule)[99:]
    assert all(b <= a + 1e-12 for a, b in pairwise(after))


@pytest.mark.parametrize("schedule", ENDING)
@pytest.mark.parametrize("min_ratio", [0.0, 0.1])
def test_the_last_update_is_at_the_minimum_and_so_are_all_after_it(schedule, min_ratio):
    assert learning_rate_factor(schedule, 1000, 100, 1000, min_ratio) == pytest.approx(min_ratio)
    assert learning_rate_factor(schedule, 5000, 100, 1000, min_ratio) == pytest.approx(min_ratio)


@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_without_warm_up_the_first_update_is_at_the_start(schedule):
    want = ONE_CYCLE_START_RATIO if schedule == "one_cycle" else 1.0
    assert learning_rate_factor(schedule, 1, 0, 1000, 0.1) == pytest.approx(want, rel=1e-2)


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("warmup", [0, 1, 3, 10])
def test_runs_shorter_than_their_warm_up_have_rates_too(schedule, warmup):
    for steps in (1, 2, 3):
        assert all(0 <= learning_rate_factor(schedule, n, warmup, steps) <= 1 for n in range(1, steps + 1))


def test_inverse_square_root_halves_when_the_count_is_fourfold():
    assert learning_rate_factor("inverse_sqrt", 400, 100, 1000) == pytest.approx(0.5)
    assert learning_rate_factor("inverse_sqrt", 9, 0, 1000) == pytest.approx(
        1 / 3
    )  # no warm-up: from the first update on


def test_cosine_is_half_way_down_in_the_middle():
    assert learning_rate_factor("cosine", 55, 10, 100, 0.0) == pytest.approx(0.5)


def test_linear_is_a_straight_line_down():
    assert learning_rate_factor("linear", 55, 10, 100, 0.0) == pytest.approx(0.5)
    assert learning_rate_factor("linear", 55, 10, 100, 0.2) == pytest.approx(0.6)


def test_wsd_is_level_until_its_last_part():
    rates = every("wsd", min_ratio=0.0)
    turn = round(1000 * (1 - WSD_DECAY_FRACTION))
    assert set(rates[99:turn]) == {1.0}
    assert rates[turn] < 1
    assert rates[turn + round(1000 * WSD_DECAY_FRACTION / 4) - 1] == pytest.approx(0.5)  # a quarter of the way: 1 - √¼


def test_one_cycle_begins_at_a_25th_and_rises_for_three_tenths_without_warm_up():
    rates = every("one_cycle", warmup=0)
    assert rates[0] == pytest.approx(ONE_CYCLE_START_RATIO)
    assert rates.index(max(rates)) + 1 == round(1000 * ONE_CYCLE_WARMUP_FRACTION)
    assert learning_rate_factor("one_cycle", 51, 101, 1000) == pytest.approx((1 + ONE_CYCLE_START_RATIO) / 2)


def test_a_recipe_can_name_every_schedule():
    from typing import get_args, get_type_hints

    assert set(get_args(get_type_hints(Train)["schedule"])) == set(SCHEDULES)
