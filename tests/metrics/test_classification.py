"""Classification metrics, against cases counted by hand."""

import pytest

from regard.core.errors import BadInput
from regard.metrics.classification import (
    accuracy,
    chunk_f1,
    exact_match,
    extract_chunks,
    is_chunk_tagging,
    macro_f1,
    matthews_correlation,
    word_f1,
)


def test_accuracy_macro_f1_and_matthews_of_a_table_counted_by_hand():
    true = ["a"] * 6 + ["b"] * 4
    predictions = ["a"] * 5 + ["b"] + ["b"] * 2 + ["a"] * 2  # 5 a right, 1 a called b; 2 b right, 2 b called a
    assert accuracy(predictions, true) == 0.7
    assert macro_f1(predictions, true) == pytest.approx((2 * 5 / (7 + 6) + 2 * 2 / (3 + 4)) / 2)
    assert matthews_correlation(predictions, true) == pytest.approx(
        (5 * 2 - 2 * 1) / (7 * 3 * 6 * 4) ** 0.5
    )  # TP TN FP FN of a


def test_matthews_is_one_when_right_and_nothing_when_one_class_is_always_said():
    assert matthews_correlation([0, 1, 2, 1], [0, 1, 2, 1]) == pytest.approx(1)
    assert matthews_correlation([1, 0], [0, 1]) == pytest.approx(-1)
    assert matthews_correlation([1, 1, 1], [0, 1, 2]) == 0
    assert macro_f1([1, 1, 1], [0, 1, 2]) == pytest.approx(0.5 / 3)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("B-NP I-NP O B-VP", [("NP", 0, 2), ("VP", 3, 4)]),
        ("B-NP B-NP I-NP", [("NP", 0, 1), ("NP", 1, 3)]),
        ("I-NP I-NP", [("NP", 0, 2)]),  # begins without B, as in IOB1
        ("O I-NP I-VP", [("NP", 1, 2), ("VP", 2, 3)]),  # another kind begins another chunk
        ("B-NP O I-NP", [("NP", 0, 1), ("NP", 2, 3)]),
        ("B-NP I-VP B-VP", [("NP", 0, 1), ("VP", 1, 2), ("VP", 2, 3)]),
        ("O O", []),
        ("", []),
    ],
)
def test_chunks_begin_and_end_as_conlleval_has_it(tags, found):
    assert extract_chunks(tags.split()) == found


def test_a_chunk_counts_only_where_kind_begin_and_end_are_right():
    true = [["B-NP", "I-NP", "O", "B-VP"], ["B-NP", "B-PP"]]  # 4 chunks
    predictions = [["B-NP", "O", "O", "B-VP"], ["B-NP", "B-NP"]]  # 4 chunks: cut short, right; right, wrong kind
    assert chunk_f1(predictions, true) == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert chunk_f1([["O"] * 4, ["O"] * 2], true)["f1"] == 0
    assert chunk_f1([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    split = chunk_f1([["B-NP", "I-NP"]], [["B-NP", "B-NP"]])  # one for two: neither is right
    assert split["f1"] == 0
    with pytest.raises(BadInput, match="2 reference tags but"):
        chunk_f1([["O"]], [["O", "O"]])


def test_precision_and_recall_are_not_mixed_up():
    found = chunk_f1([["B-NP", "O", "O"]], [["B-NP", "B-VP", "B-PP"]])
    assert (found["precision"], found["recall"]) == (1.0, pytest.approx(1 / 3))


def test_tags_that_mark_chunks_are_told_from_others():
    assert is_chunk_tagging(["O", "B-NP", "I-NP"])
    assert not is_chunk_tagging(["NN", "B-NP"])
    assert not is_chunk_tagging(["O", "I-NP"])


def test_answers_are_compared_without_case_articles_and_signs():
    assert exact_match("The Garden.", ["garden"]) == 1
    assert exact_match("another garden", ["garden"]) == 0  # "an" inside a word is no article
    assert exact_match("b", ["a", "B!"]) == 1
    assert word_f1("the red garden", ["garden of eden"]) == pytest.approx(2 * 1 / (2 + 3))
    assert word_f1("dog dog", ["dog"]) == pytest.approx(2 * 1 / (2 + 1))
    assert word_f1("x", ["y", "x z"]) == pytest.approx(2 / 3)  # the best of several
    assert word_f1("", ["the"]) == 1
    assert word_f1("", ["dog"]) == 0


def test_empty_input_cannot_be_scored():
    with pytest.raises(BadInput, match="nothing"):
        accuracy([], [])
    with pytest.raises(BadInput, match="1 predictions"):
        accuracy([1], [1, 2])


def test_macro_f1_counts_a_class_that_is_in_one_list_only_as_zero():
    assert macro_f1(["a", "c"], ["a", "a"]) == pytest.approx((2 / 3 + 0) / 2)  # c was never right
    assert macro_f1(["a", "a"], ["a", "c"]) == pytest.approx((2 / 3 + 0) / 2)  # c was never predicted
    assert macro_f1(["a", "a"], ["a", "a"]) == 1  # other classes that a model knows do not count
