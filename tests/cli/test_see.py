"""`regard see` in a folder with files of the user's own."""

from pathlib import Path

import pytest

import regard
from regard import cli
from regard.api import zoo

LINE = ["see", "two dogs .", "--model"]


def test_see_never_replaces_a_file_silently(translator_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "attention.png").write_bytes(b"mine")
    assert cli.main([*LINE, str(translator_folder)]) == 0
    assert capsys.readouterr().out.endswith("drawn: attention-2.png\n")
    assert (tmp_path / "attention.png").read_bytes() == b"mine"
    assert cli.main([*LINE, str(translator_folder)]) == 0
    assert capsys.readouterr().out.endswith("drawn: attention-3.png\n")
    assert cli.main([*LINE, str(translator_folder), "-o", "attention.png", "-o", "new.png"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("drawn: attention.png (in place of the file that was there)\ndrawn: new.png\n")
    assert (tmp_path / "attention.png").read_bytes() != b"mine"


def test_no_command_replaces_a_file_without_a_word(translator_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    for file in ("lines.txt", "map.png", "near.png", "story.png"):
        (tmp_path / file).write_bytes(b"mine")
    translate = ["translate", "two dogs .", "--model", str(translator_folder)]
    story = ["answer", "Mary took the milk. Mary went to the kitchen.", "Where is the milk?"]
    for words, file in (
        ([*translate, "--output"], "lines.txt"),
        ([*translate, "--attention"], "map.png"),
        (["near", "king", "-k", "2", "--picture"], "near.png"),
        ([*story, "--see"], "story.png"),
    ):
        assert cli.main([*words, file]) == 0
        said = "".join(capsys.readouterr())
        assert f": {file} (in place of the file that was there)\n" in said
        assert (tmp_path / file).read_bytes() != b"mine"
        if file.endswith("png"):
            assert cli.main([*words, "folder.png"]) == 1
            assert "cannot draw to folder.png: it is a folder" in capsys.readouterr().err


def test_the_drawing_says_what_is_drawn_without_marks_of_spaces(translator_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*LINE, str(translator_folder)]) == 0
    out = capsys.readouterr().out
    assert "cross-attention, mean of " in out
    assert "Each row is an output word, its columns are the input words that it looks at." in out
    assert "▁" not in out
    assert "</s> is the end." in out


def test_the_gallery_of_mechanisms_takes_a_free_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mechanisms.html").write_text("mine")
    assert cli.main(["see", "two dogs", "--mechanisms"]) == 0
    assert capsys.readouterr().out.endswith("drawn: mechanisms-2.html\n")
    assert (tmp_path / "mechanisms.html").read_text() == "mine"


def test_a_file_of_text_is_not_taken_for_a_text(translator_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "english.txt").write_text("Two dogs.\n", encoding="utf-8")
    for words in (
        ["see", "english.txt", "--model", str(translator_folder)],
        ["run", str(translator_folder), "english.txt"],
        ["answer", "english.txt", "Where?"],
        ["generate", "english.txt"],
    ):
        assert cli.main(words) == 1
        assert "english.txt is a file, and a text is expected" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["english.txt"]


def test_a_dash_is_the_line_of_stdin(translator_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for content, status in ((b"Two dogs.\n", 0), (b"One.\nTwo.\n", 1), (b"", 1)):
        (tmp_path / "in").write_bytes(content)
        with open(tmp_path / "in", encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert cli.main(["see", "-", "--model", str(translator_folder)]) == status
    out, err = capsys.readouterr()
    assert out.startswith("Two dogs.\n")
    assert err.count("cannot look at this text: ") == 2


def test_a_bare_model_is_refused_in_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    regard.save(regard.build("bert", size="tiny", vocab=20, head=None), "bare")
    assert cli.main(["see", "Two dogs.", "--model", "bare"]) == 1
    assert cli.main(["run", "bare", "Two dogs."]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "regard: bare is a BERT, the bare model without a task; in Python, regard.watch(model) shows its attention",
        "regard: bare is a BERT, the bare model: it has no task and no declared inputs",
    ]


def test_a_story_is_printed_as_what_each_hop_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["see", "Mary took the milk. Mary went to the kitchen.", "Where is the milk?"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Where is the milk?", "kitchen"]
    assert [line.split()[:2] for line in lines if line.startswith("hop ")] == [["hop", "1"], ["hop", "2"], ["hop", "3"]]
    assert lines[3].endswith("%  Mary took the milk.")
    assert cli.main(["see", "Hello", "World"]) == 0
    assert capsys.readouterr().err.count("read as unknown: hello, world") == 1


@pytest.mark.skipif("scene-questions" not in zoo(), reason="the model of questions is not here")
def test_two_inputs_choose_a_model_that_answers_questions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    picture = Path(__file__).parents[2] / "docs" / "assets" / "scene-questions.png"
    for inputs in (["Mary went to the hallway.", "Where is Mary?"], [str(picture), "How many red digits?"]):
        assert cli.main(["see", *inputs]) == 0
        assert ("hallway" if "Mary" in inputs[1] else "3") in capsys.readouterr().out
