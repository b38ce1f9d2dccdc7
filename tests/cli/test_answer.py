"""``regard answer`` with the shipped memory network, and with an extractive reader."""

import json

import regard
from regard import cli
from tests.contracts.test_predictors import predictor

STORY = "Mary took the milk. Mary went to the kitchen. John went to the garden."


def test_a_story_is_answered_and_drawn(tmp_path, capsys):
    words = ["answer", STORY, "Where is the milk?"]
    assert cli.main([*words, "-k", "2", "--see", str(tmp_path / "hops.png")]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert [len(lines), lines[0].split("\t")[0]] == [2, "kitchen"]
    assert said.err.strip() == f"regard: drawn: {tmp_path / 'hops.png'}"
    assert (tmp_path / "hops.png").stat().st_size > 1000
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "kitchen"


def test_an_extractive_reader_answers_too(tmp_path, capsys):
    regard.save(predictor("extractive_qa"), tmp_path / "reader")
    words = ["answer", "A cat sleeps.", "Who sleeps?", "--model", str(tmp_path / "reader")]
    (tmp_path / "maps.png").touch()
    assert cli.main([*words, "--see", str(tmp_path / "maps.png")]) == 0
    said = capsys.readouterr()
    assert said.out.strip() in "A cat sleeps."
    assert "maps.png (in place of the file that was there)" in said.err
    assert (tmp_path / "maps.png").stat().st_size > 1000


def test_other_models_and_empty_stories_are_refused(capsys):
    for words, message in (
        ([STORY, "Who?", "--model", "languages"], "does not answer questions"),
        (["...", "Who?"], "no sentence"),
    ):
        assert cli.main(["answer", *words]) != 0
        assert message in capsys.readouterr().err
