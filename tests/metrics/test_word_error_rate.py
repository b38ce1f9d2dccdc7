import itertools
import random

import pytest

from regard.core.errors import BadInput
from regard.metrics.word_error_rate import EditCounts, count_corpus_edits, count_edits


def within(hypothesis, most):
    """Every text reachable by at most this many edits, with the fewest needed, by brute force."""
    reached = {tuple(hypothesis): 0}
    for cost in range(1, most + 1):
        for text in [t for t, c in reached.items() if c == cost - 1]:
            for i in range(len(text) + 1):
                for new in (
                    *((*text[:i], x, *text[i:]) for x in "ab"),
                    *((*text[:i], x, *text[i + 1 :]) for x in "ab"),
                ):
                    reached.setdefault(new, cost)
                reached.setdefault(text[:i] + text[i + 1 :], cost)
    return reached


def test_the_fewest_edits_are_found():
    texts = [t for n in range(4) for t in itertools.product("ab", repeat=n)]
    for hypothesis in texts:
        reached = within(hypothesis, 3)
        for true in texts:
            assert count_edits(hypothesis, true).total == reached[true], (hypothesis, true)


def test_each_kind_of_edit_is_counted():
    assert count_edits(["a", "b", "c"], ["a", "x", "c"]) == EditCounts(1, 0, 0, 3)
    assert count_edits(["a", "b", "c"], ["a", "c"]) == EditCounts(0, 1, 0, 2)
    assert count_edits(["a", "c"], ["a", "b", "c"]) == EditCounts(0, 0, 1, 3)
    assert count_edits([], ["a", "b"]) == EditCounts(0, 0, 2, 2)
    assert count_edits(["a", "b"], []) == EditCounts(0, 2, 0, 0)


def test_the_difference_in_length_is_insertions_less_deletions():
    for hypothesis, true in itertools.product(itertools.product("abc", repeat=3), itertools.product("abc", repeat=4)):
        found = count_edits(hypothesis, true)
        assert found.insertions - found.deletions == len(hypothesis) - len(true)


def test_the_rate_of_many_weighs_words_alike():
    found = count_corpus_edits([["a"], ["a", "b", "c"]], [["b"], ["a", "b", "c"]])
    assert found == EditCounts(1, 0, 0, 4)
    assert found.rate == 0.25
    assert count_edits([], []).rate == 0.0
    assert count_edits(["a"], []).rate == 1.0
    assert count_edits(["a", "b", "c"], ["x"]).rate == 3.0
    with pytest.raises(BadInput, match="nothing to score"):
        count_corpus_edits([], [])


def test_edits_are_symmetric_and_known():
    assert count_edits("kitten", "sitting").total == 3
    assert count_edits("", "abc").total == 3
    rng = random.Random(0)
    for _ in range(50):
        a, b, c = ("".join(rng.choices("ab", k=rng.randrange(8))) for _ in range(3))
        assert count_edits(a, b).total == count_edits(b, a).total
        assert count_edits(a, c).total <= count_edits(a, b).total + count_edits(b, c).total


def test_the_rate_counts_insertions_and_deletions_too():
    found = count_corpus_edits([["a", "c"], ["d", "x", "y"]], [["a", "b", "c"], ["d"]])
    assert found == EditCounts(substitutions=0, insertions=2, deletions=1, words=4)
    assert (found.total, found.rate) == (3, 0.75)
