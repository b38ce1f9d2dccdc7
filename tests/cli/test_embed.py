"""``regard embed``, ``search``, ``fill`` and ``see`` with models that only read, called in this process."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open

import regard
from regard import cli
from regard.tasks.text.extractive_qa import QuestionAnswerer
from tests.long_params import rest_is_long
from tests.tasks import text_data
from tests.tasks.text.test_embedder import LINES, small
from tests.tasks.text.test_fill_mask import small as small_filler


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo") / "embedder"
    regard.save(small(), place)
    return place


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    place = tmp_path_factory.mktemp("zoo") / "filler"
    regard.save(small_filler(), place)
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def piped(monkeypatch, tmp_path, content):
    file = tmp_path / "stdin.txt"
    file.write_bytes(content)
    monkeypatch.setattr(sys, "stdin", file.open(encoding="utf-8"))


def test_a_dash_alone_is_stdin(folder, capsys, monkeypatch, tmp_path):
    piped(monkeypatch, tmp_path, f"{LINES[0]}\n{LINES[1]}\n".encode())
    assert call("embed", "-", "--model", folder) == 0
    assert [json.loads(line)["input"] for line in capsys.readouterr().out.splitlines()] == [LINES[0], LINES[1]]


def test_a_terminal_shows_the_beginning_of_each_vector_and_the_cosine(folder, capsys, monkeypatch):
    monkeypatch.setattr("regard.core.terminal_text.terminal_width", lambda: 80)
    assert call("embed", LINES[0], LINES[1], "--model", folder) == 0
    first, second = small()(LINES[:2])
    shown = capsys.readouterr().out.splitlines()
    assert [shown[0], shown[2]] == [f"1  {LINES[0]}", f"2  {LINES[1]}"]
    assert shown[1].startswith(f"   {float(first[0]):.3f} {float(first[1]):.3f} ")
    assert shown[4:] == [f"   cosine with 1: {float(torch.cosine_similarity(first, second, dim=0)):.3f}"]


def test_vectors_come_as_json(folder, capsys):
    assert call("embed", LINES[0], LINES[1], "--model", folder) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["input"] for row in found] == LINES[:2]
    torch.testing.assert_close(torch.tensor([row["vector"] for row in found]), small()(LINES[:2]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["npy", "safetensors", "jsonl"])
def test_vectors_go_to_a_file(folder, tmp_path, monkeypatch, capsys, kind):
    piped(monkeypatch, tmp_path, "\n".join(LINES).encode())
    file = tmp_path / f"v.{kind}"
    assert call("embed", "--model", folder, "--out", file) == 0
    assert f"{len(LINES)} vectors of 16 numbers" in capsys.readouterr().out
    if kind == "npy":
        found = np.load(file, allow_pickle=False)
    elif kind == "safetensors":
        with safe_open(file, "np") as opened:
            found = opened.get_tensor("vectors")
            assert json.loads(opened.metadata()["sentences"]) == LINES
    else:
        found = np.array([json.loads(line)["vector"] for line in file.read_text().splitlines()], dtype=np.float32)
    np.testing.assert_allclose(found, small()(LINES).numpy(), atol=1e-5)


def test_lines_are_found_by_meaning_with_their_numbers(folder, tmp_path, capsys):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join([LINES[0], "", LINES[1], "  ", LINES[2], " ".join(LINES)]))
    assert call("search", LINES[1], file, "--model", folder, "-k", 2) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 2
    assert rows[0][1:] == ["3", LINES[1]]
    assert float(rows[0][0]) == pytest.approx(1, abs=1e-3)
    assert float(rows[0][0]) >= float(rows[1][0])
    assert call("search", "a cat", file, "--model", folder, "-k", 99) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert call("search", LINES[1], file, "--model", folder, "-k", 1, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["number"], found["text"], round(found["cosine"], 3)) == (3, LINES[1], 1)


def test_a_line_that_is_no_text_is_named_and_the_rest_is_searched(folder, tmp_path, capsys):
    file = tmp_path / "lines.txt"
    file.write_bytes(b"\xff\xfe\n" + LINES[1].encode())
    assert call("search", "a cat", file, "--model", folder) == 1
    out, err = capsys.readouterr()
    assert "line 1 is not UTF-8" in err
    assert out.split("\t")[1:] == ["2", f"{LINES[1]}\n"]


def test_hidden_words_are_guessed(filler, capsys):
    assert call("fill", "The [MASK] barks.", "--model", filler, "-k", 3) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    wanted = small_filler()("The [MASK] barks.", top_k=3).masks[0]
    assert [row[1] for row in rows] == [guess.word for guess in wanted]
    assert [float(row[0]) for row in rows] == pytest.approx([guess.probability for guess in wanted], abs=1e-4)
    assert all(row[2].endswith(" barks.") and "[MASK]" not in row[2] for row in rows)
    assert call("fill", "The [MASK] [MASK].", "--model", filler, "-k", 2) == 0
    out = capsys.readouterr().out.splitlines()
    assert [out[0], out[3]] == ["mask 1", "mask 2"]
    assert len(out) == 6
    assert call("fill", "The [MASK] [MASK].", "--model", filler, "-k", 2, "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert [[guess["word"] for guess in mask] for mask in json.loads(line)["masks"]] == [
        [row.split("\t")[1] for row in rows] for rows in (out[1:3], out[4:6])
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["embed", " ", "--model", "E"], "line 1: the sentence is empty"),
        (["embed", "word " * 50, "--model", "E"], "this model takes 32"),
        (["embed", "a", "--out", "x.txt", "--model", "E"], "end the name in .npy"),
        (["embed", "word " * 50, "--model", "E", "--device", "cpu"], "--split on the command line"),
        (["embed", "a", "--output", "none/x.npy", "--model", "E"], "there is no folder none"),
        (["embed", "a", "--model", "F"], "not an embedder"),
        (["embed", "a", "--model", "en-de"], "is a Translator"),
        (["embed", "a", "--model", "nowhere"], "no model is called 'nowhere'"),
        (["search", " ", "x", "--model", "E"], "the query is empty"),
        (["search", "a\udcff", "x", "--model", "E"], "the query is not UTF-8"),
        (["search", "a", "no-such-file", "--model", "E"], "there is no file"),
        (["fill", "no mask here", "--model", "F"], "regard: text 1 has no [MASK]"),
        (["fill", "[MASK]", "--model", "E"], "does not predict masked words"),
        (["see", "a cat", "--model", "E", "--to", "de"], "not a translator"),
        (["see", "a cat", "--model", "E", "--view", "cross"], "nothing to show for --view cross"),
        (["see", "a cat", "--model", "E", "--layer", "7"], "There is no layer 7"),
    ],
    ids=lambda x: " ".join(x[:2]).replace("word word ", "")[:40] if isinstance(x, list) else None,
)
def test_bad_input_is_one_line(folder, filler, words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"E": folder, "F": filler}
    assert call(*(names.get(word, word) for word in words)) == 1
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_long_query_is_read_in_parts(folder, tmp_path, capsys):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    assert call("search", " ".join([LINES[0]] * 30), file, "--model", folder, "-k", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_an_empty_input_is_one_line(folder, filler, capsys, monkeypatch, tmp_path):
    for verb, model in (("embed", folder), ("fill", filler)):
        piped(monkeypatch, tmp_path, b"")
        assert call(verb, "--model", model) == 1
        assert "nothing to" in capsys.readouterr().err


@pytest.mark.parametrize("view", rest_is_long([None, "heads", "encoder", "layers", "rollout"], None, "rollout"))
@pytest.mark.parametrize("marks", [[], ["--no-special-tokens"]])
def test_what_a_reader_looked_at_is_drawn(folder, tmp_path, capsys, view, marks):
    file = tmp_path / "a.png"
    more = [] if view is None else ["--view", view]
    assert call("see", "The old dog barks.", "--model", folder, "-o", file, *marks, *more) == 0
    out = capsys.readouterr().out
    assert out.startswith("The old dog barks.\n\n")
    assert f"drawn: {file}" in out
    assert file.stat().st_size > 5000
    if view != "layers":
        assert ("[CLS] │" in out) is (not marks)
        assert (" is on [CLS] and [SEP]: left out, and rows scaled up" in out) is bool(marks)


@pytest.mark.parametrize("view", rest_is_long([None, "encoder", "layers", "rollout"], "layers"))
@pytest.mark.parametrize("marks", [[], ["--no-special-tokens"]])
def test_whole_words_of_a_reader_are_drawn(folder, tmp_path, capsys, view, marks):
    more = [] if view is None else ["--view", view]
    drawn = "-o", tmp_path / "a.svg", "-o", tmp_path / "a.html"
    assert "##" in "".join(regard.load(folder).attention("The snowball barks.")[0].rows)
    assert call("see", "The snowball barks.", "--model", folder, "--words", *marks, *more, *drawn) == 0
    out = capsys.readouterr().out
    assert "##" not in out
    if view != "layers":
        assert "snowball │" in out
        assert ("[CLS] │" in out) is (not marks)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "snowball" in page
    assert '"##' not in page


def test_a_page_shows_a_reader_whole(folder, filler, tmp_path, capsys):
    for model, text in ((folder, "The old dog barks."), (filler, "The [MASK] barks.")):
        assert call("see", text, "--model", model, "-o", tmp_path / "a.html") == 0
        assert "barks" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_see_a_question_and_its_text(tmp_path, capsys):
    torch.manual_seed(0)
    made = text_data.task(text_data.written(tmp_path / "data"), "questions")
    regard.save(QuestionAnswerer(text_data.model(made), made.text, 32), tmp_path / "answerer")
    words = ["see", "the dog sees the garden .", "--model", tmp_path / "answerer"]
    assert call(*words, "what did the dog see ?", "-o", tmp_path / "a.png", "-o", tmp_path / "a.html") == 0
    said = capsys.readouterr().out
    assert said.startswith("what did the dog see ?\n")
    assert (tmp_path / "a.png").stat().st_size > 2000
    assert '"question":"what did the dog see ?"' in (tmp_path / "a.html").read_text("utf-8")
    assert call(*words) == 1
    assert "takes 2 input(s), got 1: regard see TEXT QUESTION" in capsys.readouterr().err
    assert call("see", "Good day.", "why ?", "--to", "de") == 1
    assert "en-de takes 1 input(s), got 2" in capsys.readouterr().err
