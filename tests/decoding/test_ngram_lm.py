import math

import pytest

from regard.core.errors import BadInput
from regard.decoding.ngram_lm import NGramLM

ROWS = [[3, 4], [3, 4, 4], [4]]


def test_the_probabilities_after_any_prefix_sum_to_one():
    judge = NGramLM.of(ROWS, labels=6, bos=1, eos=2)
    for prefix in ((), (3,), (3, 4), (5, 5), (4, 4, 4, 4)):
        assert sum(map(math.exp, judge(prefix))) == pytest.approx(1)
        assert len(judge(prefix)) == 6


def test_unigram_equals_its_formula():
    judge = NGramLM.of(ROWS, labels=6, bos=1, eos=2, order=1)
    # nine labels: 3 twice, 4 four times, the end three times; three kinds
    expected = [(count + 3 / 6) / (9 + 3) for count in (0, 0, 3, 2, 4, 0)]
    assert [math.exp(x) for x in judge((3,))] == pytest.approx(expected)


def test_longer_history_dominates():
    judge = NGramLM.of(ROWS, labels=6, bos=1, eos=2, order=2)
    low = NGramLM.of(ROWS, labels=6, bos=1, eos=2, order=1)
    after = [math.exp(x) for x in judge((3,))]  # twice a 4, never another
    expected = [(count + 1 * math.exp(p)) / (2 + 1) for count, p in zip((0, 0, 0, 0, 2, 0), low(()), strict=True)]
    assert after == pytest.approx(expected)
    assert judge((5,)) == pytest.approx(low(()))


def test_empty_input_is_refused():
    with pytest.raises(BadInput, match="no rows"):
        NGramLM.of([], labels=3, bos=1, eos=2)
    with pytest.raises(BadInput, match="order must be 1 or more, got 0"):
        NGramLM.of(ROWS, labels=6, bos=1, eos=2, order=0)
