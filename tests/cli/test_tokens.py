"""``regard tokens``: pieces over their numbers, line by line."""

import json
import sys
import time
from io import TextIOWrapper

import pytest
import torch

import regard
from regard import cli
from regard.interpret.tokenization import TokenInfo, tokenize
from regard.models import build
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import bert
from tests.tasks.text.test_fill_mask import small


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo") / "filler"
    regard.save(small(), place)
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def from_stdin(monkeypatch, tmp_path, content):
    (tmp_path / "in").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(open(tmp_path / "in", "rb", buffering=0)))  # noqa: SIM115


def test_pieces_stand_over_their_numbers(folder, capsys):
    assert call("tokens", "The [MASK] barks, 日!", "--model", folder) == 0
    pieces, numbers = capsys.readouterr().out.splitlines()
    found = tokenize(regard.load(folder), "The [MASK] barks, 日!")
    assert pieces.split() == [each.piece for each in found]
    assert [cell.lstrip("+?") for cell in numbers.split()] == [str(each.id) for each in found]
    assert [cell[0] for cell in numbers.split() if not cell[0].isdigit()] == ["+", "?", "?", "+"]
    starts = [
        [at for at, c in enumerate(row) if c != " " and row[at - 1 : at] in ("", " ")] for row in (pieces, numbers)
    ]
    assert starts[0] == starts[1]


def test_json_has_everything_of_a_text_in_a_line(folder, capsys):
    assert call("tokens", "The [MASK]", "日", "--model", folder, "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    found = tokenize(regard.load(folder), "The [MASK]")
    assert first == {
        "number": 1,
        "input": "The [MASK]",
        "pieces": ["[CLS]", "the", "[MASK]", "[SEP]"],
        "ids": [each.id for each in found],
        "spans": [None, [0, 3], [4, 10], None],
        "added": [True, False, False, True],
        "unknown": [False] * 4,
    }
    assert (second["number"], second["unknown"]) == (2, [False, True, False])


def test_two_lines_for_every_line(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\n\n\xff\na\x00cat\r\n" + b"x" * 30_000 + b"\nthe cat")
    assert call("tokens", "--model", folder) == 1
    out, err = capsys.readouterr()
    lines = out.split("\n")
    assert len(lines) == 2 * 6 + 1
    assert [n for n in range(6) if lines[2 * n]] == [n for n in range(6) if lines[2 * n + 1]] == [0, 3, 5]
    assert lines[6].split()[:2] == ["[CLS]", "a"]  # and not "acat", which nobody wrote
    assert [line.split()[2] for line in err.splitlines()] == ["3", "4", "5"]
    assert "line 3 is not UTF-8" in err
    assert "line 4 holds control characters (U+0000): read as spaces" in err
    assert "line 5 has 30,000 characters" in err


def test_json_says_why_a_line_has_no_tokens(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\n\n\xff\nthe\x00cat\n")
    assert call("tokens", "--model", folder, "--json") == 1
    out, err = capsys.readouterr()
    good, empty, bad, spaces = map(json.loads, out.splitlines())
    assert "error" not in good
    assert empty == {"number": 2, "input": ""}
    assert "ids" not in bad
    assert f"regard: {bad['error']}" in err.splitlines()
    assert spaces["input"] == "the\x00cat"
    assert next(spaces["input"][slice(*span)] for span in spaces["spans"] if span) == "the"
    assert "error" not in spaces


def test_on_a_terminal_they_are_folded_to_its_width():
    from regard.cli.tokens import fold_columns

    found = [TokenInfo("日本", 7, (0, 2)), TokenInfo("▁dogs", 12345678, (2, 6)), TokenInfo("</s>", 2, None, True)]
    assert fold_columns(found, None) == ["日本  ▁dogs     </s>", "7     12345678  +2"]
    assert fold_columns(found, 14) == ["日本  ▁dogs", "7     12345678", "</s>", "+2"]
    assert fold_columns(found, 1) == ["日本", "7", "▁dogs", "12345678", "</s>", "+2"]
    assert fold_columns([], 9) == []


def test_a_vocabulary_by_itself(folder, tmp_path, capsys):
    text = small().text
    text.save(tmp_path / "alone")
    for source in (folder / "tokenizer.json", tmp_path / "alone" / "tokenizer.json"):
        assert call("tokens", "The dog", "--model", source, "--json") == 0
        assert json.loads(capsys.readouterr().out)["ids"] == text.encode_one("The dog")
    assert call("tokens", "The dog", "--model", tmp_path / "alone", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ids"] == text.encode_one("The dog")
    assert err.startswith("regard: only the vocabulary of")
    assert err.count("\n") == 1


@pytest.mark.parametrize("head", ["masked", None, "classes(3)"])
def test_a_folder_of_transformers_with_whatever_head(head, tmp_path, capsys):
    text = small().text
    model = build("bert", vocab=text.size, width=16, heads=2, layers=1, length=24, head=head)
    bert.save(tmp_path / "m", model, text)
    assert call("tokens", "The dog", "--model", tmp_path / "m", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ids"] == text.with_special_tokens(text.encode_one("The dog"))[0]
    assert found["added"] == [True, *[False] * (len(found["ids"]) - 2), True]


def test_a_translator_and_its_run(translator_folder, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(translator_folder)
    for name in (translator_folder, tmp_path / "run"):
        assert call("tokens", "Two dogs.", "--model", name) == 0
        pieces, numbers = capsys.readouterr().out.splitlines()
        assert pieces.startswith("▁")
        assert (pieces.split()[-1], numbers.split()[-1]) == ("</s>", "+2")


def test_models_that_read_no_text_say_so(tmp_path, capsys):
    from regard.modalities.image import Preprocess
    from regard.tasks.image.image_classification import ImageClassifier

    model = build("vit", image_size=8, patch_size=4, width=16, heads=2, layers=1, num_classes=2)
    regard.save(ImageClassifier(model, ["a", "b"], Preprocess((8, 8))), tmp_path / "images")
    regard.save(build("bert", vocab=30, width=16, heads=2, layers=1), tmp_path / "bare")
    Tokenizer.train(["a b"], kind="char", size=9).save(tmp_path / "other")
    (tmp_path / "notes.txt").write_text("hello")
    for source, said in (
        ("images", "is an ImageClassifier, which reads no text by a vocabulary"),
        ("bare", "is a BERT, which reads no text by a vocabulary"),
        ("notes.txt", "no BERT vocabulary"),
        ("nowhere", "there is no"),
    ):
        assert call("tokens", "a", "--model", tmp_path / source) == 1
        out, err = capsys.readouterr()
        assert said in err
        assert (out, err.count("\n")) == ("", 1)


def test_an_empty_input_is_one_line(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"")
    assert call("tokens", "--model", folder) == 1
    assert "nothing to tokenize" in capsys.readouterr().err


def test_a_long_line_is_cut_at_once(folder, capsys):
    began = time.monotonic()
    assert call("tokens", "the dog " * 2400, "--model", folder, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["ids"]) == 4802
    assert time.monotonic() - began < 20


def test_nothing_is_computed(folder, monkeypatch, capsys):
    monkeypatch.setattr(torch.nn.Module, "__call__", lambda *_: pytest.fail("the model was run"))
    assert call("tokens", "The dog", "--model", folder) == 0
