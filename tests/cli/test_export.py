"""``regard export``: what it prints, and what it refuses."""

import pytest

import regard
from regard import cli
from tests.contracts.test_predictors import predictor


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a small word2vec, which is exported in a moment."""
    place = tmp_path_factory.mktemp("models") / "words"
    regard.save(predictor("word2vec"), place)
    return str(place)


def test_differences_and_files_are_printed(saved, tmp_path, capsys, unchecked):
    out = tmp_path / "out"
    assert cli.main(["export", saved, "--torch", str(out), "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("model, 1 x 5: largest difference ")
    assert lines[-2].startswith("run.py, ")
    assert lines[-1].startswith(f"{out}: README.md, config.json, model.pt2, run.py")
    assert "regard" not in (out / "run.py").read_text("utf-8").split('"""')[2]


def test_without_a_folder_to_write_it_says_how(saved, capsys):
    assert cli.main(["export", saved]) == 2
    assert "--onnx FOLDER, or --torch FOLDER" in capsys.readouterr().err


def test_a_model_that_is_not_exported_says_why_and_leaves_nothing(tmp_path, capsys):
    regard.save(predictor("handwriting"), tmp_path / "pen")
    assert cli.main(["export", str(tmp_path / "pen"), "--torch", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "sampled from a mixture" in said
    assert "--network" in said
    assert [each.name for each in tmp_path.iterdir()] == ["pen"]
