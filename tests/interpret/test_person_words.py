"""Words for people in captions: which group they are of, and what the captioner's choice hangs on."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.interpret import person_words
from regard.interpret.person_words import (
    SAID,
    PersonWord,
    confusion,
    described_as,
    log_odds,
    study,
    word_group,
)
from regard.modalities.image import Preprocess
from regard.tasks.image.captioning import Captioner
from regard.tokens.word_tokenizer import build_vocabulary
from tests.contracts.test_predictors import captioner

RNG = np.random.default_rng(0)
PHOTOS = [RNG.integers(0, 256, (40, 40, 3), np.uint8) for _ in range(4)]
MAN, WOMAN = ["A man runs ."] * 3 + ["Somebody runs ."] * 2, ["A girl sits ."] * 4 + ["A person sits ."]


def speaker(monkeypatch, captions):
    """A captioner with random weights that knows words for people, and says these captions in turn."""
    words = build_vocabulary([["a", "man", "boy", "woman", "runs", "dog", "person"]], 100, 1, lower=True)
    config = {"vocab": words.size, "pad": words.pad, "bos": words.bos, "eos": words.eos}
    torch.manual_seed(0)
    found = Captioner(regard.build("show_attend_and_tell", size="tiny", **config), words, Preprocess(32), max_words=6)
    said = iter(captions)
    shown = {}

    def say(self, image, **options):
        key = image.tobytes()
        shown[key] = shown.get(key) or next(said)
        return shown[key]

    monkeypatch.setattr(Captioner, "__call__", say)
    return found


def test_groups_of_words():
    assert word_group("Two men and a dog .") == "man"
    assert word_group("A woman's hat") in ("woman", "none")
    assert word_group("A boy and a girl") == "both"
    assert word_group("A person on skis") == "neutral"
    assert word_group("A brown dog") == "none"
    assert word_group("A woman in a mansion") == "woman", "whole words only"


def test_descriptions_must_agree():
    assert described_as(MAN) == "man"
    assert described_as(WOMAN) == "woman"
    assert described_as([*MAN[:3], "A woman runs ."]) is None
    assert described_as(MAN[2:]) is None, "one caption is not enough"


def test_study_counts_what_was_said(monkeypatch):
    speak = speaker(monkeypatch, ["a man runs", "a woman runs", "a person runs"])
    found = study(speak, PHOTOS, [MAN, MAN, ["A dog ."] * 5, WOMAN])
    assert [each.number for each in found] == [0, 1, 3]
    table = confusion(found)
    assert table["man"] == dict.fromkeys(SAID, 0) | {"man": 1, "woman": 1}
    assert table["woman"] == dict.fromkeys(SAID, 0) | {"neutral": 1}
    assert [each.is_wrong for each in found] == [False, True, False]
    assert found[1].word == "woman"
    assert found[1].map.label == "woman"
    assert found[2].map is None
    assert found[2].odds is None


def test_odds_are_those_of_the_models_words(monkeypatch):
    speak = speaker(monkeypatch, [])
    pixels = PHOTOS[0][:32, :32]
    (odds, *_) = log_odds(speak, ["a", "man"], 1, [pixels, pixels // 2, 255 - pixels])
    logits = speak.read_caption(pixels, speak.encode("a man"))[0, 1].double()
    ids = {word: speak.encode(word)[0] for word in ("man", "boy", "woman")}
    p = logits.softmax(-1)
    expected = p[ids["woman"]].log() - (p[ids["man"]] + p[ids["boy"]]).log()
    assert odds == pytest.approx(expected.item(), abs=1e-5)


def test_the_attended_fifth_is_blurred_or_left(monkeypatch):
    speak = speaker(monkeypatch, ["a man runs"])
    (found,) = study(speak, PHOTOS[:1], [MAN])
    whole, without, only = person_words._versions(found.map)
    assert np.array_equal(whole, found.map.picture)
    kept = (only == whole).all(-1)
    weights = found.map.weights
    inside = weights >= np.sort(weights.ravel())[-round(0.2 * weights.size)]
    assert kept[inside].sum() >= round(0.2 * weights.size), "of cells that are attended equally, some"
    assert kept[~inside].mean() < 0.01, "blurred pixels are seldom what they were"
    assert (without != whole).any(-1)[~inside].sum() == 0


def test_what_has_no_people_is_refused(monkeypatch):
    with pytest.raises(BadInput, match="agree on a man or a woman"):
        study(captioner(), PHOTOS[:1], [["A dog ."] * 5])
    with pytest.raises(BadInput, match="no words for men"):
        log_odds(captioner(), ["x"], 0, [PHOTOS[0][:32, :32]])


def test_the_page_has_the_counts_and_the_picture_is_drawn(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location(
        "make_person_words", Path(__file__).parents[2] / "docs/make_person_words.py"
    )
    made = importlib.util.module_from_spec(spec)
    sys.modules["make_person_words"] = made
    spec.loader.exec_module(made)
    speak = speaker(monkeypatch, ["a man runs", "a woman runs", "a person runs"])
    found = study(speak, PHOTOS[:3], [MAN, MAN, WOMAN])
    text = made.page(found, ["a man", "a man", "a girl"], "About.")
    assert "| man | 2 | 1 | 1 | 0 | 0 | 0 |" in text
    assert "| woman | 1 | 0 | 0 | 0 | 1 | 0 |" in text
    assert "1 of 2 (50.0 %)" in text
    assert "2.00 for men" in text
    assert isinstance(found[0], PersonWord)
    made.draw(found, tmp_path / "words.png")
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")
