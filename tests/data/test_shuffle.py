from collections import Counter

import numpy as np
import pytest

from regard.data.shuffle import Shuffle


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10, 16, 17, 100, 101, 4096, 9973, 65537])
def test_shuffle_is_a_permutation(size):
    assert sorted(Shuffle(size, 7)(np.arange(size)).tolist()) == list(range(size))


def test_shuffle_of_one_position_equals_shuffle_of_many():
    shuffle = Shuffle(1001, 7)
    full = shuffle(np.arange(1001))
    assert np.array_equal(np.concatenate([shuffle(np.arange(1001)[i : i + 37]) for i in range(0, 1001, 37)]), full)
    assert np.array_equal(shuffle(np.arange(1001)[::-1]), full[::-1])


def test_permutations_are_about_equally_likely():
    found = Counter(tuple(Shuffle(4, key)(np.arange(4)).tolist()) for key in range(4800))
    assert len(found) == 24
    assert min(found.values()) > 140  # 200 each; four standard deviations are 56
    assert max(found.values()) < 260


def test_neighbours_are_separated():
    order = Shuffle(20_000, 3)(np.arange(20_000))
    steps = np.abs(np.diff(order))
    assert (steps == 1).sum() < 12  # 2 are expected
    assert abs(steps.mean() / 20_000 - 1 / 3) < 0.01
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03


def test_shuffle_of_huge_size():
    size = 10**12 + 7
    found = Shuffle(size, 11)(np.arange(10_000))
    assert len(set(found.tolist())) == 10_000
    assert found.min() >= 0
    assert found.max() < size
    assert abs(found.mean() / size - 0.5) < 0.02
