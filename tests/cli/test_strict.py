"""Inputs unlike the training data of a shipped model: a note on stderr, a field in JSON, an error with --strict."""

import json

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import regard
from regard import cli
from regard.interpret.inspection import inspect
from regard.serve.http.app import make_app
from regard.serve.http.model_pool import ModelPool

SPANISH, GERMAN = "Dónde está la estación", "Wo ist der Bahnhof?"


def test_note_is_on_stderr_and_the_answer_is_printed(capsys):
    assert cli.main(["classify", SPANISH, GERMAN]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err.count("\n") == 1
    assert err.startswith("regard: line 1: 3 of 4 words are not in its training data (dónde, está, estación)")


def test_json_lines_have_the_warning_where_there_is_one(capsys):
    assert cli.main(["run", "languages", SPANISH, GERMAN, "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "3 of 4 words" in first["warning"]
    assert "warning" not in second


def test_strict_refuses_only_what_is_unusual(capsys):
    assert cli.main(["classify", SPANISH, GERMAN, "--json", "--strict"]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert "3 of 4 words" in first["error"]
    assert second["label"] == "German"
    assert cli.main(["classify", GERMAN, "--strict"]) == 0
    assert cli.main(["classify", SPANISH]) == 0  # it holds for one command


def test_strict_see_draws_nothing(capsys, tmp_path):
    file = tmp_path / "a.png"
    assert cli.main(["see", SPANISH, "--model", "languages", "--strict", "-o", str(file)]) == 1
    assert "3 of 4 words" in capsys.readouterr().err
    assert not file.exists()


def test_a_generated_text_is_refused_too(capsys):
    words = ["generate", "Die Katze sitzt auf dem Sofa", "--max-new-tokens", "1"]
    assert cli.main([*words, "--strict"]) == 1
    assert capsys.readouterr().out == ""
    assert cli.main(words) == 0
    assert "Shakespeare's plays" in capsys.readouterr().err


def test_inspection_has_the_warning():
    classify = regard.load("languages")
    assert "3 of 4 words" in inspect(classify, {"text": SPANISH}).about()["warning"]
    assert inspect(classify, {"text": GERMAN}).about()["warning"] == ""


@pytest.fixture(scope="module")
def client():
    pool = ModelPool(["languages"], device="cpu")
    with TestClient(make_app(pool), base_url="http://127.0.0.1") as made:
        yield made


def test_service_names_the_input_that_is_unusual(client):
    found = client.post("/v1/classify", json={"inputs": [GERMAN, SPANISH]}).json()
    ((warning,), outputs) = found["warnings"], found["outputs"]
    assert warning["input"] == 1
    assert "3 of 4 words" in warning["message"]
    assert len(outputs) == 2
    assert "warnings" not in client.post("/v1/classify", json={"inputs": [GERMAN]}).json()


def test_a_question_about_a_photo_is_noted(tmp_path, capsys):
    photo = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(photo)
    words = ["ask", str(photo), "How many red digits?"]
    assert cli.main([*words, "--strict"]) == 1
    out, err = capsys.readouterr()
    assert (out, "composed scenes" in err) == ("", True)
    assert cli.main([*words, "--json"]) == 0
    assert "composed scenes" in json.loads(capsys.readouterr().out)["warning"]
