import pytest

from regard.core.errors import BadInput
from regard.data.text import moses
from regard.metrics import bleu

REFERENCES = ["Ein Mann läuft durch den Schnee.", "Zwei Hunde spielen im Gras."]


def test_equal_text_scores_100_and_says_how():
    found = bleu.bleu(REFERENCES, REFERENCES)
    assert found.value == pytest.approx(100)
    assert "tok:13a" in found.signature
    assert "case:mixed" in found.signature
    assert bleu.chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert str(found) == f"100.00 ({found.signature})"


def test_case_counts_unless_asked_not_to():
    lower = [line.lower() for line in REFERENCES]
    assert bleu.bleu(lower, REFERENCES).value < 90
    found = bleu.bleu(lower, REFERENCES, lower=True)
    assert found.value == pytest.approx(100)
    assert "case:lc" in found.signature


@pytest.mark.skipif(not moses.is_available(), reason="sacremoses is optional")
def test_tokenised_bleu_is_over_lower_case_moses_tokens():
    found = bleu.bleu_tokenized([line.upper() for line in REFERENCES], REFERENCES, "de")
    assert found.value == pytest.approx(100)
    assert "tok:none" in found.signature
    assert "ref_len = 13" in found.detail


def test_nothing_to_score_and_uneven_lists_are_errors():
    with pytest.raises(BadInput, match="nothing"):
        bleu.bleu([], [])
    with pytest.raises(BadInput, match="1 translations"):
        bleu.bleu(["a"], REFERENCES)


def test_bleu_of_every_order_against_several_references_equals_pycocoevalcap():
    scorer = pytest.importorskip("pycocoevalcap.bleu.bleu_scorer", reason="pip install pycocoevalcap").BleuScorer
    outputs = ["a dog runs over the green grass", "two kids play in the snow", "a man"]
    references = [
        ["a dog runs over grass", "the dog runs over the grass"],
        ["two kids play", "children play in the snow", "two kids play in the deep snow"],
        ["a man in a red shirt", "a man rides"],
    ]
    theirs = scorer(n=4)
    for output, several in zip(outputs, references, strict=True):
        theirs += (output, several)
    wanted, _ = theirs.compute_score(option="closest")
    found = bleu.bleu_orders(outputs, references)
    assert [found[f"bleu{n}"].value for n in range(1, 5)] == pytest.approx([100 * x for x in wanted], rel=1e-6)
