"""A run's model goes into the zoo with a card that has its scores, and with its answers."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import regard
from regard.core.errors import BadInput
from regard.data.images.scene_questions import SceneQuestions
from regard.tasks.image import visual_question_answering
from regard.training.recipe import build, load_recipe

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("ship_model", ROOT / "scripts/ship_model.py")
ship_model = importlib.util.module_from_spec(spec)
sys.modules["ship_model"] = ship_model
spec.loader.exec_module(ship_model)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run whose model was never trained."""
    folder = tmp_path_factory.mktemp("runs") / "vqa"
    task = visual_question_answering.Config().build(SceneQuestions(image_size=64), seed=1)
    model = build(task.fit(load_recipe("vqa_scenes").model))
    regard.save(model, folder / "model", task=task.describe(), dtype="float16")
    metrics = [ship_model.Metric("accuracy", "accuracy", "%", high=1.0, scale=100)]
    result = {
        "parameters": 5,
        "steps": 16_000,
        "seconds": 90.0,
        "eval_seconds": 30.0,
        "seed": 3,
        "final_weights": "ema",
    }
    validation = {"validation": {"ema": {"accuracy": 0.75}, "last": {"accuracy": 0.5}}}
    (folder / "result.json").write_text(json.dumps(result | validation))
    results = {"test": {"accuracy": 0.625, "split": "test"}}
    evaluation = {"metrics": [vars(each) for each in metrics], "results": results}
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    return folder


def ship(run, tmp_path, name="scene-questions"):
    stored = tmp_path / "answers.json"
    stored.write_text('{"other": 1}')
    ship_model.ship(run, name, "regard train vqa_scenes", "one H200", "2026-11-19", tmp_path / "zoo", stored)
    return tmp_path / "zoo" / name, json.loads(stored.read_text())


def test_card_and_answers_are_those_of_the_run(run, tmp_path):
    folder, stored = ship(run, tmp_path)
    card = (folder / "README.md").read_text()
    for part in (
        "accuracy 75.00 %",
        "accuracy 62.50 %",
        "seed 3",
        "16,000 updates, 2 minutes",
        "float16",
        "final weights: ema",
    ):
        assert part in card
    assert stored["other"] == 1
    ask = regard.load(str(folder))
    for question, label, probability in stored["scene-questions"]:
        found = ask(ship_model.coat_and_shoe(), question)
        assert (found.label, found.probability) == (label, pytest.approx(probability))
        assert label in ask.answers


def test_models_that_are_too_large_together_do_not_ship(run, tmp_path, monkeypatch):
    monkeypatch.setattr(ship_model, "MAX_BYTES", 10_000)
    with pytest.raises(BadInput, match="at most 3 ship"):
        ship(run, tmp_path)


def test_scores_of_tasks_and_hops_have_rows_of_their_own():
    found = {"error": 0.1, "accuracy_2": 0.9, "accuracy_10": 0.5, "facts_hop1": 0.8, "facts_10_hop1": 0.3}
    assert ship_model.whole(found) == {"error": 0.1}
    rows = ship_model.story_rows(found).splitlines()
    assert "by task, 2 to 10 | 90, 50 %" in rows[0]
    assert "for 80 % of the test questions" in rows[1]
    assert ship_model.story_rows({"accuracy": 0.5}) == ""
