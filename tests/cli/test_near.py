"""``regard near``: neighbours as lines, what is not known as one line on stderr."""

import json

import pytest
import torch

import regard
from regard import cli
from regard.models.word2vec import Config, Word2Vec
from regard.tasks.text.word2vec import NearestWords
from regard.tokens.word_tokenizer import build_vocabulary


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("words") / "mine"
    text = build_vocabulary([["dog", "cat", "bread", "wine"]], size=20, lower=True)
    torch.manual_seed(1)
    regard.save(NearestWords(Word2Vec(Config(vocab=text.size, width=6)), text), place)
    return str(place)


def test_neighbours_are_printed_with_their_cosines(folder, capsys):
    assert cli.main(["near", "dog", "Bread", "--model", folder, "-k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[3]] == ["dog", "Bread"]
    words = regard.load(folder)
    for line, each in zip(lines[1:3], words.nearest("dog", 2), strict=True):
        assert line.split() == [each.word, f"{each.cosine:.3f}"]


def test_json_holds_the_same_a_line_for_each_question(folder, capsys, tmp_path):
    words, picture = regard.load(folder), tmp_path / "a.svg"
    asked = ["dog", "--analogy", "dog", "cat", "bread", "--picture", str(picture)]
    assert cli.main(["near", *asked, "--model", folder, "--json"]) == 0
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    neighbors = [each._asdict() for each in words.nearest("dog", 10)]
    assert first == {"number": 1, "input": "dog", "word": "dog", "neighbors": neighbors}
    assert second["neighbors"][0]["word"] == "wine"
    assert str(picture) in err  # lines of JSON stay alone on stdout


def test_an_analogy_is_printed(folder, capsys):
    assert cli.main(["near", "--analogy", "dog", "cat", "bread", "--model", folder]) == 0
    words = regard.load(folder)
    given = ", ".join(f"{each.word} {each.cosine:.3f}" for each in words("cat - dog + bread").given)
    assert capsys.readouterr().out.splitlines() == [
        "cat - dog + bread",
        f"  wine  {words.analogy('dog', 'cat', 'bread')[0].cosine:.3f}",
        f"  (left out: {given})",
    ]


def test_a_sum_of_words_is_written_as_it_is_thought_quoted_or_not(folder, capsys):
    words = regard.load(folder)
    unit = torch.nn.functional.normalize(words.vectors(["cat", "dog", "bread"]), dim=1)
    total = torch.nn.functional.normalize(unit[0] - unit[1] + unit[2], dim=0)
    assert [each.cosine for each in words("cat - dog + bread").given] == pytest.approx((unit @ total).tolist())
    for asked in (["cat", "-", "dog", "+", "bread"], ["cat - dog + bread"]):
        assert cli.main(["near", "wine", *asked, "--model", folder, "--json"]) == 0
        first, second = map(json.loads, capsys.readouterr().out.splitlines())
        assert first["word"] == "wine"
        assert "given" not in first
        assert [second["word"], *(each["word"] for each in second["given"])] == [
            "cat - dog + bread",
            "cat",
            "dog",
            "bread",
        ]
        assert [each["word"] for each in second["neighbors"]] == ["wine"]
    for wrong in (["-", "dog"], ["dog", "+"], ["dog", "+", "-", "cat"]):
        assert cli.main(["near", *wrong, "--model", folder]) == 2
        assert "king - man + woman" in capsys.readouterr().err
    assert cli.main(["near", "cat - dgo + bread", "--model", folder]) == 1
    assert "'dgo'" in capsys.readouterr().err


def test_an_unknown_word_is_one_line_and_the_others_are_answered(folder, capsys):
    assert cli.main(["near", "dgo", "dog", "--model", folder]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("dog\n")
    assert said.err == "regard: 'dgo' is not among the 4 words of this model; similar ones: dog\n"
    assert cli.main(["near", "dgo", "dog", "--model", folder, "--json"]) == 1
    bad, good = map(json.loads, capsys.readouterr().out.splitlines())
    assert bad == {"number": 1, "input": "dgo", "error": said.err.removeprefix("regard: ").rstrip()}
    assert good["input"] == "dog"


def test_nothing_asked_and_models_of_another_kind_are_refused(folder, capsys, translator_folder):
    assert cli.main(["near"]) == 2
    assert "give one or more words" in capsys.readouterr().err
    assert cli.main(["near", "dog", "--model", str(translator_folder)]) == 1
    assert "not word vectors" in capsys.readouterr().err


def test_a_picture_is_drawn(folder, capsys, tmp_path):
    file = tmp_path / "near.svg"
    assert cli.main(["near", "dog", "--model", folder, "--picture", str(file)]) == 0
    assert "wine" in file.read_text()
    assert cli.main(["near", "dog", "--model", folder, "--picture", str(tmp_path / "near.gif")]) == 1


def test_a_page_is_refused_before_anything_is_printed(folder, capsys, tmp_path):
    assert cli.main(["near", "dog", "--model", folder, "--picture", str(tmp_path / "near.html")]) == 1
    said = capsys.readouterr()
    assert not said.out
    assert "end the name in .png or .svg" in said.err


def test_top_is_what_it_is_of_other_verbs(folder, capsys):
    assert cli.main(["near", "dog", "--model", folder, "--top-k", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_ships_knows_everyday_words(capsys):
    if "words-en" not in regard.api.zoo():
        pytest.skip("words-en is not here")
    assert cli.main(["near", "three", "-k", "5"]) == 0
    assert {"two", "four"} <= set(capsys.readouterr().out.split())
    assert cli.main(["near", "--analogy", "man", "woman", "brother", "-k", "3"]) == 0
    assert "sister" in capsys.readouterr().out
