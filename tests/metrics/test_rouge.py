"""ROUGE of a corpus, through rouge-score."""

import sys

import pytest

from regard.core.errors import BadInput, Unsupported
from regard.metrics.rouge import rouge


def test_corpus_score_is_the_mean_over_texts_of_the_best_reference():
    pytest.importorskip("rouge_score")
    found = rouge(["a b c", "x y"], [["a b d", "a b c"], ["x z"]])
    assert found["rouge1"].value == pytest.approx(100 * (1 + 0.5) / 2)
    assert found["rouge2"].value == pytest.approx(100 * (1 + 0) / 2)
    assert "no stems" in found["rougeL"].signature


def test_stemmer_joins_inflected_words():
    pytest.importorskip("rouge_score")
    assert rouge(["the firms were rising"], [["the firm rises"]])["rouge1"].value == pytest.approx(200 / 7)
    stemmed = rouge(["the firms were rising"], [["the firm rises"]], use_stemmer=True)["rouge1"]
    assert stemmed.value == pytest.approx(600 / 7)
    assert "Porter stems" in stemmed.signature


def test_bad_numbers_of_texts_are_refused():
    with pytest.raises(BadInput, match="2 summaries cannot be scored against 1"):
        rouge(["a", "b"], [["a"]])
    with pytest.raises(BadInput, match="nothing to score"):
        rouge([], [])


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    with pytest.raises(Unsupported, match=r"regard\[rouge\]"):
        rouge(["a"], [["a"]])
