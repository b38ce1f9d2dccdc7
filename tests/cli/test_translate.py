"""``regard translate`` and ``regard see``, called in this process."""

import json
import sys
from io import TextIOWrapper

import pytest
import torch

import regard
from regard import cli
from regard.cli import demo, see
from regard.cli.load_translator import describe_device, load_prepared_translator
from regard.core.errors import BadInput, RegardError
from tests.long_params import rest_is_long

LINES = ["Two dogs are playing.", "", "A man reads a book in a small house.", "a horse"]


@pytest.fixture(scope="module")
def translator(translator_folder):
    return regard.load(translator_folder)


def call(*words):
    return cli.main([str(word) for word in words])


def test_output_is_what_the_library_gives(translator, translator_folder, capsys):
    assert call("translate", *LINES, "--model", translator_folder, "--beam-size", 3, "--length-penalty", 0.6) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == translator(LINES, beam_size=3, length_penalty=0.6)


def test_nbest_gives_number_score_and_text(translator, translator_folder, capsys):
    assert call("translate", *LINES, "--model", translator_folder, "--num-candidates", 5) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.split("\n")[:-1]]
    assert [row[0] for row in rows] == [*"11111", "2", *"33333", *"44444"]
    wanted = translator(LINES, beam_size=5, num_candidates=5)[2].candidates
    assert [row[2] for row in rows if row[0] == "3"] == [candidate.text for candidate in wanted]
    scores = [float(row[1]) for row in rows if row[0] == "3"]
    assert scores == sorted(scores, reverse=True)


def test_json_is_what_an_output_says_of_itself_as_regard_run_prints_it(translator, translator_folder, capsys):
    assert call("translate", *LINES, "--model", translator_folder, "--num-candidates", 2, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = translator(LINES, num_candidates=2)
    asked = [{"number": number, "input": line} for number, line in enumerate(LINES, 1)]
    assert rows == [ask | (each.to_json() if ask["input"] else {}) for ask, each in zip(asked, found, strict=True)]
    options = "--num-candidates", 2, "--json", "--device", "cpu"
    assert call("translate", LINES[2], "--model", translator_folder, *options) == 0
    expected = capsys.readouterr().out
    assert call("run", translator_folder, LINES[2], *options) == 0
    assert capsys.readouterr().out == expected


def test_samples_depend_on_the_number_of_a_line_however_many_are_read_together(translator_folder, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("a dog\n" * 70)
    asked = "translate", "--model", translator_folder, "--sample", "--seed", 5
    assert call(*asked, "--file", tmp_path / "in.txt") == 0
    whole = capsys.readouterr().out.splitlines()
    assert len(set(whole)) > 35
    for kept in (69, 40):  # other lines are blank, so that other lines are in the batch
        (tmp_path / "in.txt").write_text("\n" * kept + "a dog\n")
        assert call(*asked, "--file", tmp_path / "in.txt") == 0
        assert capsys.readouterr().out.splitlines()[kept] == whole[kept]


def test_text_of_several_lines_is_several_lines(translator_folder, capsys):
    assert call("translate", "two\nlines\n", "--model", translator_folder, "--beam-size", 1) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_a_line_that_breaks_the_search_is_the_only_one_lost(translator_folder, capsys, monkeypatch):
    from regard.tasks.text.translation import Translator

    whole = Translator.predict_numbered

    def breaks(self, lines, *args, **kwargs):
        if any("horse" in line for line in lines):
            raise RuntimeError("not enough\nmemory")
        return whole(self, lines, *args, **kwargs)

    monkeypatch.setattr(Translator, "predict_numbered", breaks)
    assert call("translate", *LINES, "--model", translator_folder, "--beam-size", 1) == 1
    out, err = capsys.readouterr()
    assert [bool(line) for line in out.split("\n")] == [True, False, True, False, False]
    assert err == "regard: line 4: not enough memory\n"


def test_complaints_are_counted_when_there_are_too_many(translator_folder, tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b"\xff\n" * 250)
    assert call("translate", "--file", tmp_path / "in.txt", "--model", translator_folder) == 1
    out, err = capsys.readouterr()
    assert out == "\n" * 250
    assert err.count("\n") == 101
    assert err.endswith("regard: 150 more inputs could not be used as they stand\n")


def test_a_long_line_is_cut_and_that_is_said(translator_folder, capsys):
    assert call("translate", "a dog. " * 60, "--model", translator_folder, "--beam-size", 1) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err.startswith("regard: line 1 has ")
    assert "split into" in err


@pytest.mark.parametrize(
    "words",
    [
        ["--beam-size", "0"],
        ["--num-candidates", "8", "--beam-size", "4"],
        ["--groups", "3", "--beam-size", "4"],
        ["--diversity", "1"],
        ["--seed", "1"],
        ["--sample", "--beam-size", "2"],
        ["--sample", "--must", "Hund"],
        ["--beam-size", "1", "--length-penalty", "2"],
        ["--sample", "--length-penalty", "2"],
    ],
)
def test_options_that_do_not_go_together_are_refused(words, capsys):
    assert call("translate", "dogs", "--to", "de", *words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_which_translator_is_meant(translator_folder, tmp_path):
    found = load_prepared_translator(str(translator_folder), "en", "de")
    assert (found.source, found.target) == ("en", "de")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(translator_folder)
    assert (
        load_prepared_translator(str(tmp_path / "run"), None, None).text.size == found.text.size
    )  # a run keeps its model inside
    with pytest.raises(BadInput, match="translates en to de; --to fr needs another model"):
        load_prepared_translator(str(translator_folder), None, "fr")
    with pytest.raises(RegardError, match="--to de"):
        load_prepared_translator(None, None, None)
    with pytest.raises(BadInput, match="no translator en-xx comes with regard"):
        load_prepared_translator(None, None, "xx")


def test_a_model_that_is_no_translator_is_refused(tmp_path):
    regard.save(regard.build("transformer", vocab=10, width=8, heads=2, ffn=8), tmp_path / "bare")
    with pytest.raises(BadInput, match="is a Transformer, not a translator"):
        load_prepared_translator(str(tmp_path / "bare"), None, None)


def test_weights_are_float32_whatever_they_were_stored_as(translator, tmp_path):
    half = regard.load(_stored(translator, tmp_path / "half"))
    half.model.bfloat16()
    regard.save(half, tmp_path / "brain")
    found = load_prepared_translator(str(tmp_path / "brain"), None, None, "cpu")
    assert {p.dtype for p in found.model.parameters()} == {torch.float32}
    assert describe_device(found).startswith("CPU, float32, ")


def _stored(translator, folder):
    regard.save(translator, folder, dtype="float16")
    return folder


OF_OTHERS = ("class", "relevance", "pooling", "gates", "gradcam", "points", "labels")  # images, points
OF_TEXTS = [view for view in see.View if view not in OF_OTHERS]


@pytest.mark.parametrize("view", OF_TEXTS)
def test_every_view_draws(view, translator_folder, tmp_path, capsys):
    picture = tmp_path / "a.svg"
    how = "--model", translator_folder, "--view", view.value, "--output", picture
    assert call("see", "Two dogs.", "--target-text", "Zwei Hunde.", *how) == 0
    assert picture.read_text("utf-8").startswith("<?xml")
    out = capsys.readouterr().out
    assert out.startswith("Two dogs.\nZwei Hunde.\n")
    assert out.endswith(f"drawn: {picture}\n")


@pytest.mark.parametrize("view", rest_is_long(OF_TEXTS, "cross", "encoder"))
def test_every_view_draws_whole_words(view, translator_folder, tmp_path, capsys):
    how = "--model", translator_folder, "--view", view.value, "--output", tmp_path / "a.svg"
    assert call("see", "Don't play, dogs.", "--target-text", "Spielt nicht, Hunde.", "--words", *how) == 0
    drawn = capsys.readouterr().out.split("\n\n")[1]
    if view.value in ("cross", "heads", "rollout", "path", "decoder"):
        assert [line.split("│")[0].strip() for line in drawn.splitlines() if "│" in line] == [
            "Spielt", "nicht", ",", "Hunde", ".", "</s>"
        ]  # fmt: skip
    elif view == see.View.encoder:
        assert [line.split("│")[0].strip() for line in drawn.splitlines() if "│" in line] == [
            "Don't", "play", ",", "dogs", ".", "</s>"
        ]  # fmt: skip


def test_layers_and_heads_that_are_not_there_are_said(translator_folder, tmp_path, capsys):
    for words, said in (
        (["--layer", "7"], "there are 0 to 1"),
        (["--head", "9"], "There is no head 9 in decoder"),
    ):
        assert call("see", "Two dogs.", "--model", translator_folder, "-o", tmp_path / "a.png", *words) == 1
        assert said in capsys.readouterr().err
    for text in ("", "  ", "two\nlines", "x" * 30_000):
        assert call("see", text, "--model", translator_folder, "-o", tmp_path / "a.png") == 1
        assert "cannot look at this text" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_demo_translates_and_draws(translator_folder, tmp_path, capsys):
    assert demo.demo(tmp_path / "demo", [str(translator_folder)]) == 0
    out = capsys.readouterr().out
    assert all(sentence in out for sentence in demo.SENTENCES)
    for name in ("attention.png", "attention.html"):
        assert (tmp_path / "demo" / name).stat().st_size > 1000
        assert str(tmp_path / "demo" / name) in out


@pytest.mark.long
def test_the_demo_says_so_when_nothing_can_be_compiled(translator_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert demo.demo(tmp_path / "demo", [str(translator_folder)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "torch.compile" in line]
    assert "no C++ compiler found" in line
    assert "eager mode" in line


def test_stdin_is_read_when_no_text_is_given(translator_folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "in.txt").write_bytes("\n".join(LINES).encode())
    with open(tmp_path / "in.txt", "rb") as file:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(file))
        assert call("translate", "--model", translator_folder, "--beam-size", 1) == 0
    assert capsys.readouterr().out.count("\n") == len(LINES)


def test_a_missing_language_is_said_before_anything_is_read(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main(["translate"]) == 1
    assert "say which language to translate to: --to de" in capsys.readouterr().err
