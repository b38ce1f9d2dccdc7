"""The pictures of captioners and models of questions, with their failures."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from regard.data.images.scene_questions import QuestionScene, SceneQuestions
from regard.modalities.classes import Classes
from tests.contracts.test_predictors import question_answerer

spec = importlib.util.spec_from_file_location(
    "make_looking_figures", Path(__file__).parents[2] / "docs/make_looking_figures.py"
)
figures = importlib.util.module_from_spec(spec)
sys.modules["make_looking_figures"] = figures
spec.loader.exec_module(figures)


class Composer:
    """Eight scenes of noise; every question has the answer "red"."""

    def __init__(self, *_):
        self.rng = np.random.default_rng(0)

    def compose(self, i):
        from regard.data.images.scene_questions import Question

        pixels = self.rng.integers(0, 256, (3, 24, 24), dtype=np.uint8)
        questions = [Question("colour", "What colour is the bag?", "red", (0,))] * 4
        return QuestionScene(pixels, np.ones((1, 24, 24), bool), [("bag", "red")], questions)


def test_failures_are_wrong_answers_the_surest_first(monkeypatch, tmp_path):
    monkeypatch.setattr("regard.data.images.scene_questions.QuestionComposer", Composer)
    ask, said = question_answerer(), iter([0.9, 0.2, 0.6, 0.3, 0.8, 0.1, 0.7, 0.4])

    def answer(self, image, question):
        red = next(said)
        return Classes.rank(["red", "blue"], [red, 1 - red])

    monkeypatch.setattr(type(ask), "__call__", answer)
    found = figures.question_examples(ask, SceneQuestions(image_size=48), "val", 8)
    assert [each.score == figures.RIGHT for each in found] == [True, False, True, False, True, False, True, False]
    assert [round(each.score, 1) for each in found[1::2]] == [0.2, 0.3, 0.1, 0.4]
    assert "blue (80 %), not red" in found[1].panels[0][2]
    figures.draw_sheet(found[:6], tmp_path / "sheet.png")
    assert Image.open(tmp_path / "sheet.png").size[1] > 500
