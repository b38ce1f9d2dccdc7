"""Metrics of generated text."""

import pytest

from regard.core.errors import BadInput
from regard.metrics.generation import METRICS


def values(metric, outputs, right):
    return {name: score.value for name, score in METRICS[metric](outputs, right).items()}


def test_a_label_is_right_to_the_letter_only():
    right = [("positive",), ("negative",), ("negative",), ("positive",)]
    outputs = ["positive", "negative.", " negative", "Positive"]
    assert values("accuracy", outputs, right) == {"accuracy": 50.0}


def test_exact_match_forgives_case_articles_and_signs():
    found = values("exact_match", ["The Cat.", "a dog ran"], [("cat",), ("dog", "the dog walks")])
    assert found["exact_match"] == 50.0
    assert found["f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)


def test_phonemes_are_counted_against_the_nearest_pronunciation():
    right = [("K AE T", "K AA T"), ("D AO G",), ("B",)]
    found = values("per", ["K AA T", "D AA G Z", ""], right)
    assert found["word_accuracy"] == pytest.approx(100 / 3)
    assert found["wer"] == pytest.approx(200 / 3)
    assert found["per"] == pytest.approx(100 * (0 + 2 + 1) / (3 + 3 + 1))
    details = {name: score.detail for name, score in METRICS["per"](["K AA T", "D AA G Z", ""], right).items()}
    assert details | {"word_accuracy": ""} == {"word_accuracy": "", "wer": "2 of 3", "per": "3 of 7"}


def test_one_sound_is_counted_as_one():
    assert values("per", ["D"], [("B",)])["per"] == 100.0
    assert values("per", ["D AA"], [("B",)])["per"] == 200.0


@pytest.mark.parametrize("metric", METRICS)
def test_all_right_is_100_and_every_score_says_how_it_was_counted(metric):
    outputs = ["ein hund läuft im schnee", "K AE T D AO G"]
    found = METRICS[metric](outputs, [(each,) for each in outputs])
    assert next(iter(found.values())).value == pytest.approx(100)
    assert all(score.signature for score in found.values())


@pytest.mark.parametrize("metric", METRICS)
def test_empty_and_unequal_inputs_are_refused(metric):
    with pytest.raises(BadInput):
        METRICS[metric]([], [])
    with pytest.raises(BadInput):
        METRICS[metric](["a"], [("a",), ("b",)])
