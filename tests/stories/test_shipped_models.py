"""Every shipped model gives the answers that were stored before names, packages and predictors changed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.api import zoo

STORED = json.loads((Path(__file__).parent / "shipped_answers.json").read_text(encoding="utf-8"))
ENGLISH = [
    "Two dogs are playing in the snow.",
    "A man in a red shirt is climbing a rock.",
    "I do not know where she lives.",
]


def near(found, stored):
    """Scores differ in the last digits between machines."""
    return found == pytest.approx(stored, rel=1e-3, abs=2e-4)


def check_candidates(outputs, stored):
    for output, candidates in zip(outputs, stored, strict=True):
        assert [each.text for each in output.candidates] == [text for text, _ in candidates]
        assert near([each.score for each in output.candidates], [score for _, score in candidates])


def test_no_shipped_model_is_left_out():
    assert set(STORED) == set(zoo())


@pytest.mark.parametrize("name", ["en-de", "en-fr", "gru-additive"])
def test_translators_write_the_stored_translations(name):
    translate = regard.load(name)
    assert translate(ENGLISH, beam_size=1) == STORED[name]["greedy"]
    check_candidates(translate(ENGLISH, beam_size=4, num_candidates=2), STORED[name]["beam"])
    typed = STORED[name].get("typed", {})  # as people type: no capital, no mark, names, contractions
    assert dict(zip(typed, translate([*typed], beam_size=4), strict=True)) == typed


def test_the_language_model_writes_the_stored_texts():
    write = regard.load("shakespeare")
    greedy = write(["ROMEO:", "To be, or not"], max_new_tokens=60, temperature=0.0)
    assert greedy == STORED["shakespeare"]["greedy"]
    sampled = write(["ROMEO:"], max_new_tokens=60, temperature=0.8, top_k=20, seed=3)
    assert sampled == STORED["shakespeare"]["sampled"]


def test_the_masked_model_fills_in_the_stored_words():
    fill = regard.load("fill-en")
    found = fill(["The [MASK] is sleeping on the sofa.", "She has a [MASK] and a [MASK]."], top_k=3)
    for output, masks in zip(found, STORED["fill-en"], strict=True):
        for predictions, stored in zip(output.masks, masks, strict=True):
            assert [each.word for each in predictions] == [word for word, _ in stored]
            assert near([each.probability for each in predictions], [probability for _, probability in stored])


def test_the_text_classifier_gives_the_stored_labels():
    found = regard.load("languages")(["Wo ist der Bahnhof?", "Where is the station?", "Où est la gare ?"])
    assert [each.label for each in found] == [label for label, _ in STORED["languages"]]
    assert near([each.probability for each in found], [probability for _, probability in STORED["languages"]])


def test_the_pronouncer_gives_the_stored_pronunciations():
    pronounce = regard.load("sounds-en")
    found = pronounce(["attention", "regard", "cat"], beam_size=4, num_candidates=2)
    check_candidates(found, STORED["sounds-en"])


def test_word_vectors_have_the_stored_neighbors():
    found = regard.load("words-en")("dog", top_k=3).neighbors
    assert [each.word for each in found] == [word for word, _ in STORED["words-en"]]
    assert near([each.cosine for each in found], [cosine for _, cosine in STORED["words-en"]])


@pytest.mark.parametrize("name", ["digits", "digits-listen"])
def test_speech_recognizers_write_the_stored_transcripts(name):
    time = np.arange(8000) / 8000
    noise = np.random.default_rng(0).standard_normal(8000)
    tone = 0.4 * np.sin(2 * np.pi * (200 + 300 * time) * time) + 0.2 * np.sin(2 * np.pi * 1200 * time) * (time > 0.3)
    wave = torch.from_numpy((tone + 0.05 * noise).astype("float32"))
    recognize = regard.load(name)
    text, score, beam_text, beam_score = STORED[name]
    greedy, beam = recognize(wave, beam_size=1), recognize(wave, beam_size=4)
    assert (greedy.text, beam.text) == (text, beam_text)
    assert near([greedy.score, beam.score], [score, beam_score])


def test_the_image_classifier_gives_the_stored_probabilities():
    y, x = np.mgrid[0:28, 0:28]
    picture = ((np.hypot(y - 14, x - 10) < 9) * 200 + (x > 18) * 50).astype("uint8")
    found = regard.load("fashion")(Image.fromarray(picture))
    label, probability, probabilities = STORED["fashion"]
    assert found.label == label
    assert near(found.probability, probability)
    assert near([found.probabilities[name] for name in probabilities], list(probabilities.values()))


def test_the_handwriting_model_draws_the_stored_strokes():
    found = regard.load("pen-digits")("42", seed=1)
    shape, first, total = STORED["pen-digits"]
    assert list(found.points.shape) == shape
    assert near(found.points[:20].flatten().tolist(), np.array(first).flatten().tolist())
    assert near(float(found.points.double().abs().sum()), total)


def test_the_memory_network_gives_the_stored_answers():
    stories = [
        "Mary took the milk. Mary went to the kitchen. John went to the garden.",
        "Mary moved to the bathroom. John went to the hallway.",
    ]
    found = regard.load("stories")(stories, ["Where is the milk?", "Where is John?"])
    assert [each.label for each in found] == [label for label, _ in STORED["stories"]]
    assert near([each.probability for each in found], [probability for _, probability in STORED["stories"]])


def test_the_detector_finds_the_stored_boxes():
    found = regard.load("scenes")(coat_and_shoe(), min_score=0.0).boxes[:3]
    assert [each.label for each in found] == [label for label, _, _ in STORED["scenes"]]
    assert near([each.score for each in found], [score for _, score, _ in STORED["scenes"]])
    for each, (_, _, corners) in zip(found, STORED["scenes"], strict=True):
        assert near([each.left, each.top, each.right, each.bottom], corners)


def test_the_classifier_of_points_gives_the_stored_probabilities():
    u, v = torch.rand(2, 300, generator=torch.Generator().manual_seed(0)) * 2 * torch.pi
    torus = torch.stack([(1 + 0.35 * v.cos()) * u.cos(), (1 + 0.35 * v.cos()) * u.sin(), 0.35 * v.sin()], 1)
    assert near(regard.load("shapes")(torus.numpy()).probabilities, STORED["shapes"])


def coat_and_shoe():
    y, x = np.mgrid[0:64, 0:64]
    coat, shoe = (abs(x - 20) < 9) & (abs(y - 30) < 14), (abs(x - 46) < 11) & (abs(y - 48) < 6)
    channels = [60 + y // 2 + 120 * coat, 70 + 140 * shoe, 80 + 100 * (coat | shoe)]
    return Image.fromarray(np.stack(channels, -1).astype("uint8"))


def test_the_captioner_writes_the_stored_caption():
    text, score = STORED["scene-captions"]
    best = regard.load("scene-captions")(coat_and_shoe()).candidates[0]
    assert best.text == text
    assert near(best.score, score)


@pytest.mark.skipif("scene-segments" not in zoo(), reason="the segmenter is not here")
def test_the_segmenter_gives_the_stored_segments():
    found = regard.load("scene-segments")(coat_and_shoe()).masks
    assert [each.label for each in found] == [label for label, _, _ in STORED["scene-segments"]]
    for each, (_, pixels, score) in zip(found, STORED["scene-segments"], strict=True):
        assert abs(int(each.pixels.sum()) - pixels) <= max(2, 0.01 * pixels)
        assert each.score == pytest.approx(score, rel=1e-2)


@pytest.mark.skipif("scene-questions" not in zoo(), reason="the model of questions is not here")
def test_questions_about_a_picture_get_the_stored_answers():
    ask = regard.load("scene-questions")
    for question, label, probability in STORED["scene-questions"]:
        found = ask(coat_and_shoe(), question)
        assert found.label == label
        assert near(found.probability, probability)
