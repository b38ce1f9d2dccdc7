"""Questions about stories inspected: a map per hop whose columns are the sentences, drawn beside the answer."""

import numpy as np
import pytest

import regard
from regard.core.errors import RegardError
from regard.interpret.figures import make_figure
from regard.interpret.inspection import inspect

STORY = "Mary took the milk. Mary went to the kitchen. Mary took the milk. Mary went to the office."


@pytest.fixture(scope="module")
def answerer():
    return regard.load("stories")


def test_hops_are_maps_of_sentences(answerer, tmp_path):
    seen = inspect(answerer, {"text": STORY, "question": "Where is the milk?"})
    reading = answerer.read_story(STORY, "Where is the milk?")
    assert seen.about()["axes"]["sentence"]["tokens"] == reading.sentences
    assert len(seen.store) == len(reading.weights)
    for name, weights in zip(seen.store, reading.weights.numpy(), strict=True):
        assert seen.labels_of(name) == (["Where is the milk?"], reading.sentences)
        np.testing.assert_allclose(seen.row(name, 0, 0), weights, rtol=1e-5, atol=1e-7)
    places = seen.about()["axes"]["sentence"]["positions"]
    assert [
        STORY[slice(*place["text"])] for place in places
    ] == reading.sentences  # a sentence said twice has two places
    figure = make_figure(seen)
    question, answer, _, first, *_ = figure.text().splitlines()
    assert (question, answer) == ("Where is the milk?", seen.output["label"])
    assert first.startswith("hop 1 ")
    assert first.endswith(reading.sentences[int(reading.weights[0].argmax())])
    figure.save(tmp_path / "hops.png")
    assert (tmp_path / "hops.png").stat().st_size > 5_000


@pytest.mark.parametrize("given", [{"text": STORY}, {"text": STORY, "question": " "}, {"text": "", "question": "Who?"}])
def test_a_story_and_a_question_are_needed(answerer, given):
    with pytest.raises(RegardError):
        inspect(answerer, given)
