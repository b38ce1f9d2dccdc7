"""``regard pronounce``: sounds for words, line by line."""

import json
import re
import sys
from io import TextIOWrapper

import pytest
import torch

import regard
from regard import cli
from regard.api import zoo
from regard.models.rnnsearch import Config, RNNSearch
from regard.tasks.text.pronunciation import Pronouncer
from regard.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(3)
    text = Tokenizer.train(["a b c d e ' r t", "AA B K D EH R T"] * 2, kind="word", size=99)
    model = RNNSearch(Config(vocab=text.size, width=8, hidden=12, readout=None, dropout=0.0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    place = tmp_path_factory.mktemp("zoo") / "sounds"
    regard.save(Pronouncer(model, text), place)
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def test_sounds_for_every_word(folder, capsys):
    assert call("pronounce", "Bad", "card", "--model", folder, "--device", "cpu") == 0
    assert capsys.readouterr().out.splitlines() == regard.load(folder)(["bad", "card"])


def test_line_n_of_the_output_belongs_to_line_n_of_the_input(folder, monkeypatch, tmp_path, capsys):
    (tmp_path / "in").write_bytes(b"bad\n\nb4d\n\xff\ncard tea\n")
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(open(tmp_path / "in", "rb", buffering=0)))  # noqa: SIM115
    assert call("pronounce", "--model", folder, "--device", "cpu") == 1
    out, err = capsys.readouterr()
    bad, card, tea = regard.load(folder)(["bad", "card", "tea"])
    assert out.split("\n") == [bad, "", "", "", f"{card} | {tea}", ""]
    assert "line 3: 'b4d' has the character '4'" in err
    assert "line 4 is not UTF-8" in err


def test_a_word_that_is_cut_is_named_and_not_by_the_number_of_a_line(folder, capfd):
    long = "bad" * 25
    assert call("pronounce", "cat", f"bad card {long}", "--model", folder, "--device", "cpu") == 0
    said = capfd.readouterr().err
    assert "the word 'badbadbadbadbad…adbadbad' has 75 tokens, more than 64: split into 2 parts" in said
    assert "line" not in said


def test_an_apostrophe_among_the_letters_does_not_look_like_a_quote(folder, capsys):
    assert call("pronounce", "123", "--model", folder, "--device", "cpu") == 1
    assert "it takes ' a b c d e r t\n" in capsys.readouterr().err


def test_several_pronunciations_and_json(folder, capsys):
    assert call("pronounce", "bad", "--model", folder, "--num-candidates", "2", "--device", "cpu") == 0
    best = [candidate.text for candidate in regard.load(folder)("bad", num_candidates=2).candidates]
    assert capsys.readouterr().out.rstrip("\n").split("\t") == best
    assert call("pronounce", "bad tea", "--model", folder, "--json", "--device", "cpu") == 0
    found = json.loads(capsys.readouterr().out)
    bad, tea = regard.load(folder)(["bad", "tea"])
    assert found == {"number": 1, "input": "bad tea", "text": f"{bad} | {tea}", "score": (bad.score + tea.score) / 2}
    assert call("pronounce", "b4d", "bad", "--model", folder, "--json", "--device", "cpu") == 1
    out, err = capsys.readouterr()
    wrong, fine = map(json.loads, out.splitlines())
    assert (wrong["input"], f"regard: {wrong['error']}\n") == ("b4d", err)
    assert "error" not in fine


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pronounce", "bad", "--model", "languages"], "languages is a TextClassifier, not a pronouncer"),
        (["pronounce", " "], "there is nothing to pronounce"),
        (["pronounce", "bad", "-"], "line 2: '-' has no letters to pronounce"),
    ],
)
def test_what_cannot_be_done_is_one_line(folder, words, says, capsys):
    more = [] if "--model" in words else ["--model", folder]
    assert call(*words, *more) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_more_pronunciations_than_beams_are_refused(folder, capsys):
    assert call("pronounce", "bad", "--model", folder, "--num-candidates", "9") == 2
    assert "--num-candidates must be at most --beam-size (4), got 9" in capsys.readouterr().err


def test_see_draws_which_letters_each_sound_looked_at(folder, tmp_path, capsys):
    assert call("see", "bad", "--model", folder, "-o", tmp_path / "bad.png", "-o", tmp_path / "bad.html") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[:2] == ["bad", regard.load(folder)(["bad"])[0]]
    assert (tmp_path / "bad.png").stat().st_size > 1000
    assert "bad" in (tmp_path / "bad.html").read_text(encoding="utf-8")


def test_eval_says_how_often_it_is_wrong_by_length(folder, tmp_path, capsys):
    rows = ["bad\tB AA D", "card\tK AA R D\tK EH R D", "abracadabra\tAA B R AA"]
    for part in ("train", "test"):
        (tmp_path / f"{part}.tsv").write_text("\n".join(rows) + "\n")
    assert call("eval", folder, "--data", tmp_path, "--device", "cpu", "--beam-size", "1") == 0
    out = capsys.readouterr().out
    assert re.search(r"WER +100\.00 .*by any listed pronunciation", out)
    assert "length    1-4 (2)   WER 100.00 %  PER" in out
    assert "length  11-12 (1)   WER" in out
    assert call("eval", folder, "--data", tmp_path, "--to", "de") == 1
    assert "pronunciation has no" in capsys.readouterr().err


@pytest.mark.skipif("sounds-en" not in zoo(), reason="the pronouncer that ships is not here")
def test_the_one_that_ships_knows_everyday_words_and_fits(capsys):
    folder = zoo()["sounds-en"]
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4 * 2**20
    assert "Carnegie Mellon University" in (folder / "README.md").read_text(encoding="utf-8")
    assert call("pronounce", "cat", "phone", "Night", "checking", "--device", "cpu") == 0
    assert capsys.readouterr().out.splitlines() == ["K AE T", "F OW N", "N AY T", "CH EH K IH NG"]
