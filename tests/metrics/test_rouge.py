"""Our ROUGE and Google's rouge_score, on text that was drawn and on text that people wrote."""

import random

import pytest

from regard.core.errors import BadInput
from regard.metrics.porter_stemmer import porter_stem
from regard.metrics.rouge import ROUGE_TYPES, rouge, rouge_pair

TEXTS = [
    ("The cat sat on the mat.", "A cat was sitting on the mat, wasn't it?"),
    ("", "nothing to see"),
    ("only the output", ""),
    ("!!! ???", "..."),
    ("Große Übung: naïve café", "grosse Übung naive cafe"),
    ("one", "one"),
    ("one two", "two one"),
    ("U.S. profits rose 2.5% to $11.1bn", "US profits rose 2.5% to £11.1bn"),
    ("running runs runner ran dying skies news", "run runs running die sky new relational conditional"),
]


def drawn(seed):
    """Texts over few words, so that much is equal; with signs, capitals and figures in between."""
    rng = random.Random(seed)
    words = ["the", "Firm", "firms", "rose", "rising", "2%", "(profits)", "profit", "a", "x-y", "über", "it's", "."]
    return tuple(" ".join(rng.choices(words, k=rng.randrange(40))) for _ in range(2))


@pytest.mark.parametrize("stem", [False, True])
def test_scores_are_those_of_rouge_score(stem):
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(list(ROUGE_TYPES), use_stemmer=stem)
    seen = set()
    for output, reference in [*TEXTS, *map(drawn, range(300))]:
        theirs = scorer.score(reference, output)
        for kind, value in rouge_pair(output, reference, stem).items():
            assert value == pytest.approx(theirs[kind].fmeasure, abs=1e-12), (kind, output, reference)
            seen.add(round(value, 3))
    assert len(seen) > 100


def test_a_corpus_is_the_mean_of_its_texts_by_the_best_reference():
    found = rouge(["a b c", "x y"], [["a b d", "a b c"], ["x z"]])
    assert found["rouge1"].value == pytest.approx(100 * (1 + 0.5) / 2)
    assert found["rouge2"].value == pytest.approx(100 * (1 + 0) / 2)
    assert "no stems" in found["rougeL"].signature


def test_bad_numbers_of_texts_are_refused():
    with pytest.raises(BadInput, match="2 summaries cannot be scored against 1"):
        rouge(["a", "b"], [["a"]])
    with pytest.raises(BadInput, match="nothing to score"):
        rouge([], [])


def test_stems_are_those_of_nltk():
    porter = pytest.importorskip("nltk.stem.porter").PorterStemmer()
    ends = "s es ies ied ed ing eed y ly ally ational tional enci anci izer bli fulli logi ation ator alism iveness "
    ends += "fulness ousness aliti iviti biliti icate ative alize iciti ical ful ness al ance ence er ic able ible ant "
    ends += "ement ment ent ion sion tion ou ism ate iti ous ive ize e ll"
    starts = "a b ca cre tr hop plan fall hiss fizz skat run rel at troubl conflat agr sky d t l fl happ anal theo"
    words = {start + end for start in starts.split() for end in ends.split()} | {"dying", "skies", "news", "innings"}
    assert len(words) > 1000
    assert {word: porter_stem(word) for word in words} == {word: porter.stem(word) for word in words}
