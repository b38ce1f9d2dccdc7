import pytest

from regard.core.errors import MAX_SUGGESTIONS, BadInput, did_you_mean, require_iterable, shorten, with_article

NAMES = ("pronounce_cpu", "pronounce_gpu", "t5_pronounce", "hard_pronounce", "luong_multi30k")


def test_names_with_the_typed_prefix_come_first():
    assert did_you_mean("pronounce", NAMES) == "did you mean 'pronounce_cpu' or 'pronounce_gpu'?"
    assert did_you_mean("luong", NAMES) == "did you mean 'luong_multi30k'?"
    assert did_you_mean("a", "abc") == "did you mean 'a'?"
    assert did_you_mean("na", ["nab", "nag", "nap"]) == "did you mean 'nab', 'nag' or 'nap'?"


def test_without_a_few_such_names_the_closest_is_suggested():
    assert did_you_mean("t5_pronunce", NAMES) == "did you mean 't5_pronounce'?"
    assert did_you_mean("zzz", NAMES) == "known: " + ", ".join(sorted(NAMES))
    assert did_you_mean("", NAMES).startswith("known: ")
    many = [f"name{i}" for i in range(MAX_SUGGESTIONS + 1)]
    assert did_you_mean("name", many) == "did you mean 'name6'?"
    assert did_you_mean("x", []) == "known: none"
    assert did_you_mean("photo.jpg", [f"name{i}" for i in range(400)]) == "none of the 400 known names is like it"


def test_names_have_their_article():
    assert [with_article(name) for name in ("ImageClassifier", "Translator")] == ["an ImageClassifier", "a Translator"]


@pytest.mark.parametrize("items", ["two dogs", b"two dogs", {"a": 1}, {"a", "b"}, frozenset("ab"), None, 3])
def test_letters_bytes_keys_and_what_has_no_order_are_no_list(items):
    with pytest.raises(
        BadInput, match=f"give a list of texts, not {'None' if items is None else 'a ' + type(items).__name__}"
    ):
        require_iterable(items, "texts")


def test_a_value_in_a_message_is_one_short_line():
    assert shorten("a\n b") == "a b"
    assert shorten("x" * 80) == "x" * 80
    assert shorten("x" * 81) == "x" * 77 + "..."
