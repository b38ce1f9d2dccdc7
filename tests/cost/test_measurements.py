"""What is computed from measurements: exponents, crossovers, values between two lengths, powers of claimed costs."""

import pytest

from regard.attention import MECHANISMS, MIXERS
from regard.core.spec import resolve
from regard.cost.measurements import claimed_exponent, find_crossover, fit_exponent, interpolate, total_times


@pytest.mark.parametrize(
    ("cost", "power"),
    [
        ("N M D", 2.0),
        ("(N + M) D²", 1.0),
        ("N w D", 1.0),
        ("N √N D", 1.5),
        ("N √(N) D + N C²", 1.5),
        ("N log N D", 1.0),
        ("N (w + g) D", 1.0),
        ("N (c + M/c) D", 2.0),
        ("N² D", 2.0),
        ("(N/c)² D + N c", 2.0),
        ("N M^0.5 D", 1.5),
        ("N (", None),
    ],
)
def test_the_power_of_a_claimed_cost(cost, power):
    assert claimed_exponent(cost) == power


def test_every_claimed_cost_can_be_parsed():
    for table in (MECHANISMS, MIXERS):
        for name in table:
            traits = getattr(resolve(table, name, "attention"), "traits", None)
            assert traits is None or claimed_exponent(traits.cost) is not None, f"{name}: {traits.cost}"


def test_the_exponent_is_that_of_the_upper_lengths():
    times = {n: 1e-3 + 1e-9 * n**2 for n in (256, 512, 1024, 65536, 131072, 262144)}
    assert fit_exponent(times) == pytest.approx(2, abs=0.01)
    assert fit_exponent({256: 1.0}) is None


def test_the_crossover_lies_where_the_lines_cross():
    dense = {n: 1e-9 * n**2 for n in (256, 512, 1024, 2048)}
    linear = {n: 7e-7 * n for n in dense}
    assert find_crossover(linear, dense) == pytest.approx(700, abs=1)
    assert find_crossover(dense, linear) is None
    assert find_crossover({n: t / 2 for n, t in dense.items()}, dense) == 256
    assert find_crossover({4096: 1.0}, dense) is None


def test_nothing_is_extrapolated():
    times = {256: 1.0, 1024: 4.0}
    assert interpolate(times, 512) == pytest.approx(2.0)
    assert interpolate(times, 256) == 1.0
    assert interpolate(times, 128) is None
    assert interpolate(times, 2048) is None


def test_cells_that_failed_have_no_time():
    cells = {"256": {"forward": 1.0, "backward": 2.0, "memory": 3}, "512": {"failed": "out of memory"}}
    record = {"cases": {"linear": {"causal": cells}}}
    assert total_times(record, "linear", "causal") == {256: 3.0}
    assert total_times(record, "linear", "bidirectional") == total_times(record, "other", "causal") == {}
