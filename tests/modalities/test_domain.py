"""Domains: inputs that are unlike the training data of a model are noted, and the others are not."""

import math
from itertools import product

import numpy as np
import pytest
from PIL import Image

import regard
from regard.api import zoo
from regard.core.errors import BadInput
from regard.modalities.domain import FILE, load_domains, save_domains
from regard.modalities.image_domain import ImageDomain, features
from regard.modalities.word_domain import WordDomain, _binomial_surprise

SUBJECTS, VERBS, PLACES = ("a dog", "my cat", "the boy"), ("sleeps", "plays", "isn't happy"), ("here.", "at home!")
SENTENCES = [" ".join(each) for each in product(SUBJECTS, VERBS, PLACES)]


@pytest.fixture(scope="module")
def words():
    return WordDomain.fit(
        "tiny sentences",
        [[*SENTENCES, "Quick wizards vex jumping frogs (🦊)."]],
        [*SENTENCES, "the zebra sleeps here."],
        ["[MASK]"],
    )


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(0)

    def dark(side=9):
        picture = np.zeros((side, side), np.uint8)
        picture[2:7, 2:7] = rng.integers(120, 200, (5, 5))
        return Image.fromarray(picture)

    train, held_out = [dark() for _ in range(300)], [dark() for _ in range(100)]
    return ImageDomain.fit("bright squares on black", train, held_out), [dark() for _ in range(100)]


def test_sentences_of_training_words_are_not_noted(words):
    assert not any(words.note(each) for each in SENTENCES)
    assert words.surprise("A DOG ISN’T HAPPY") == 0  # neither case nor the kind of apostrophe counts in words


def test_foreign_words_are_named(words):
    note = words.note("un chien dort ici")
    assert "4 of 4 words are not in its training data (un, chien, dort, ici)" in note
    assert "trained on tiny sentences" in note


def test_one_unknown_character_is_noted_among_known_words(words):
    assert "😀 was never seen in training" in words.note("my cat sleeps here 😀")
    assert not words.note("my cat\tsleeps\nhere")  # whitespace is not


def test_ignored_strings_are_no_words(words):
    assert not words.note("my [MASK] sleeps here.")


def test_a_text_must_be_like_one_group_not_like_several_in_part():
    groups = [["one two three"] * 3, ["un deux trois"] * 3]
    mixed, united = (
        WordDomain.fit("numbers", parts, ["one two three"] * 50) for parts in (groups, [groups[0] + groups[1]])
    )
    assert mixed.note("one deux three trois")
    assert not united.note("one deux three trois")


@pytest.mark.parametrize(("k", "n", "p"), [(1, 1, 0.3), (2, 5, 0.1), (7, 7, 0.01)])
def test_surprise_is_the_tail_of_the_binomial_distribution(k, n, p):
    tail = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert _binomial_surprise(k, n, p) == pytest.approx(-math.log(tail))
    assert _binomial_surprise(0, n, p) == 0


def test_pictures_like_the_training_ones_pass_and_others_do_not(pictures):
    domain, same = pictures
    assert sum(bool(domain.note(each)) for each in same) <= 6
    rng = np.random.default_rng(1)
    for other in (
        255 - np.asarray(same[0]),
        rng.integers(0, 256, (9, 9), dtype=np.uint8),
        np.full((9, 9), 40, np.uint8),
    ):
        assert "bright squares on black" in domain.note(Image.fromarray(other))


def test_features_are_the_same_number_for_every_size():
    sizes = [(9, 9), (28, 28), (11, 30), (3, 5)]
    assert len({features(Image.new("L", size)).shape for size in sizes}) == 1
    assert np.isfinite(features(Image.new("RGB", (1, 1)))).all()


def test_domains_are_the_same_after_saving(words, pictures, tmp_path):
    domain, same = pictures
    save_domains(tmp_path / FILE, {"text": words, "image": domain})
    loaded = load_domains(tmp_path / FILE)
    assert [loaded["text"].note(each) for each in ("un chien", "my cat")] == [words.note("un chien"), ""]
    assert loaded["image"].surprise(same[0]) == pytest.approx(domain.surprise(same[0]), rel=1e-6)


def test_a_damaged_file_is_refused(words, tmp_path):
    from safetensors.numpy import save_file

    file = tmp_path / FILE
    save_domains(file, {"text": words})
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(BadInput, match="damaged"):
        load_domains(file)
    kinds = (
        '{"text": {"kind": "smell"}}',
        '{"text": 3}',
        "[1]",
        '{"text": {"kind": "text", "about": "x", "threshold": 1e999}}',
    )
    for metadata in kinds:
        save_file({"text.filter.0": np.zeros(3, np.uint8)}, file, metadata={"domains": metadata})
        with pytest.raises(BadInput, match="damaged"):
            load_domains(file)


def test_saving_and_loading_a_predictor_keeps_its_domain(tmp_path):
    regard.save(regard.load("languages"), tmp_path / "copy")
    copy = regard.load(tmp_path / "copy")
    assert copy.domain_notes(["Wo ist der Bahnhof?"]) == [""]
    assert "3 of 4 words" in copy.domain_notes(["Dónde está la estación"])[0]


FAMILIAR = {
    "en-de": "Two dogs are playing in the snow.",
    "en-fr": "Where is the station?",
    "gru-additive": "I'd like a cup of tea.",
    "fill-en": "The [MASK] sat on the bed.",
    "languages": "Où est la gare ?",
    "shakespeare": "ROMEO: What light is this?",
}


@pytest.mark.parametrize("name", FAMILIAR)
def test_shipped_text_models_note_other_languages_and_characters(name):
    domain = load_domains(zoo()[name] / FILE)["text"]
    assert not domain.note(FAMILIAR[name])
    for foreign in ("Dónde está el perro blanco?", "Gdzie jest dworzec?", "Где вокзал?", "駅はどこですか。"):
        assert domain.note(foreign), foreign


def test_calling_a_predictor_logs_one_line_about_unusual_inputs(caplog):
    classify = regard.load("languages")
    classify(["Dónde está la estación", "Where is the dog?", "Gdzie jest dworzec?"])
    (record,) = caplog.records
    assert record.getMessage().startswith("2 of 3 inputs are unusual; the first: 3 of 4 words")


def test_a_text_without_words_is_noted(words):
    for text in ("12345", "3.14 + 2"):
        assert "it has no words" in words.note(text)
    assert not words.note(" \n")


def test_one_unknown_word_is_singular(words):
    assert "1 of 1 words is not in its training data" in words.note("zyzzyva")
