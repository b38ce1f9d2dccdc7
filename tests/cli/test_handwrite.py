"""``regard handwrite``: a picture of all lines, strokes as JSON, and one line for what cannot be written."""

import json

import pytest
import torch

import regard
from regard import cli
from regard.models.handwriting import Config, Handwriting
from regard.tasks.strokes.handwriting import HandwritingSynthesizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("pen") / "mine"
    torch.manual_seed(1)
    regard.save(
        HandwritingSynthesizer(
            Handwriting(Config(vocab=11, hidden=8, mixtures=2, aligner="gmm(mixtures=2, step=0.3)"))
        ),
        place,
    )
    return str(place)


@pytest.mark.parametrize("more", [[], ["--window"]])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_is_drawn(folder, tmp_path, capsys, suffix, more):
    file = tmp_path / f"digits.{suffix}"
    assert cli.main(["handwrite", "31", "4", "--model", folder, "-o", str(file), "--seed", "2", *more]) in (0, 1)
    assert file.stat().st_size > 500
    assert capsys.readouterr().out == f"drawn: {file}\n"


def test_strokes_are_those_of_the_library(folder, tmp_path, capsys):
    words = [
        "handwrite",
        "31",
        "--model",
        folder,
        "-o",
        str(tmp_path / "a.svg"),
        "-n",
        "2",
        "--bias",
        "2",
        "--seed",
        "5",
    ]
    cli.main([*words, "--json", "--device", "cpu"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = regard.load(folder).samples(["31"], 2, bias=2.0, seed=5)
    for said, line in zip(found, wanted, strict=True):
        assert (said["text"], said["finished"]) == ("31", line.finished)
        torch.testing.assert_close(torch.tensor(said["window"]), line.window, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(torch.tensor(said["points"]), line.points, atol=1e-3, rtol=1e-3)


@pytest.fixture(scope="module")
def wordless(tmp_path_factory):
    place = tmp_path_factory.mktemp("pen") / "wordless"
    torch.manual_seed(2)
    regard.save(HandwritingSynthesizer(Handwriting(Config(vocab=0, hidden=8, mixtures=2)), letters="", unit=0.2), place)
    return str(place)


def test_a_model_without_texts_writes_on(wordless, tmp_path, capsys):
    file = tmp_path / "letters.png"
    words = ["handwrite", "--model", wordless, "-o", str(file), "--points", "40", "-n", "2", "--device", "cpu"]
    assert cli.main(words) == cli.main([*words, "--json"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"drawn: {file}"
    found = [json.loads(line) for line in said[1:]]
    assert [len(line["points"]) for line in found] == [40, 40]
    wanted = regard.load(wordless).sample_unconditional(40, num_samples=2)
    torch.testing.assert_close(torch.tensor(found[1]["points"]), wanted[1].points, atol=1e-3, rtol=1e-3)


def test_a_text_is_asked_for_where_one_is_needed_and_refused_where_not(folder, wordless, tmp_path, capsys):
    assert cli.main(["handwrite", "--model", folder, "-o", str(tmp_path / "a.png")]) == 1
    assert "nothing to write" in capsys.readouterr().err
    assert cli.main(["handwrite", "12", "--model", wordless, "-o", str(tmp_path / "a.png")]) == 1
    assert "leave the text out" in capsys.readouterr().err
    assert cli.main(["handwrite", "--window", "--model", wordless, "-o", str(tmp_path / "a.png")]) == 1
    assert "no window to draw" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("words", "status", "match"),
    [
        (["31x!"], 1, "cannot write '!', 'x'; it knows the characters 0123456789"),
        ([""], 1, "nothing to write"),
        (["3", "--bias", "-1"], 2, "bias"),
        (["3", "-o", "digits.gif"], 1, ".png or .svg"),
    ],
)
def test_what_cannot_be_written_is_one_line(folder, tmp_path, capsys, words, status, match):
    assert cli.main(["handwrite", "-o", str(tmp_path / "a.png"), "--model", folder, *words]) == status
    said = capsys.readouterr().err
    assert match in said
    assert said.count("\n") == 1


def test_models_of_another_kind_are_refused(translator_folder, tmp_path, capsys):
    assert cli.main(["handwrite", "3", "-o", str(tmp_path / "a.png"), "--model", str(translator_folder)]) == 1
    assert "does not write by hand" in capsys.readouterr().err


def test_a_picture_without_a_name_takes_a_free_one(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handwriting.png").write_bytes(b"mine")
    cli.main(["handwrite", "--model", folder, "1"])
    assert capsys.readouterr().out == "drawn: handwriting-2.png\n"
    assert (tmp_path / "handwriting.png").read_bytes() == b"mine"
