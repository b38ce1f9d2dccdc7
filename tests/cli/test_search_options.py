"""Every way of decoding, from the command line and from Python."""

import pytest

import regard
from regard import cli
from regard.core.errors import RegardError

LINES = ["Two dogs are playing.", "A man reads a book in a small house.", "a horse"]


@pytest.fixture(scope="module")
def translator(translator_folder):
    return regard.load(translator_folder)


@pytest.fixture
def call(translator_folder, capsys):
    def lines(*words, text=LINES):
        status = cli.main(["translate", *text, "--model", str(translator_folder), *words])
        out, err = capsys.readouterr()
        return status, out.split("\n")[:-1], err

    return lines


def test_drawing_depends_on_the_seed_and_the_place_of_a_line_only(translator, call):
    one = call("--sample", "--seed", "3", "--top-k", "20")[1]
    assert call("--sample", "--seed", "3", "--top-k", "20")[1] == one
    assert call("--sample", "--seed", "4", "--top-k", "20")[1] != one
    assert call("--sample", "--seed", "3", "--top-k", "20", text=LINES[:1])[1] == one[:1]
    drawn = translator.candidates(LINES, sample=True, seed=3, top_k=20, batch_tokens=1)
    assert [each[0].text for each in drawn] == one
    assert list(translator.stream(LINES, window=2, sample=True, seed=3, top_k=20)) == one


def test_drawing_from_one_word_is_greedy(translator):
    assert translator(LINES, sample=True, top_k=1) == translator(LINES, beam_size=1)


def test_groups_of_beams_find_other_outputs(translator, call):
    plain = translator(LINES, beam_size=4, num_candidates=4)
    status, rows, _ = call("--groups", "4", "--diversity", "8", "--num-candidates", "4")
    assert status == 0
    assert len(rows) == 12
    assert [row.split("\t")[2] for row in rows[:4]] != [c.text for c in plain[0].candidates]


def test_translations_begin_as_asked(translator, call):
    status, lines, _ = call("--prefix", "Ein Mann")
    assert status == 0
    assert all(line.startswith("Ein Mann") for line in lines)
    assert translator(LINES, beam_size=1, prefix="Ein Mann")[0].startswith("Ein Mann")
    assert call("--prefix", "Ein Mann", "--sample")[1][0].startswith("Ein Mann")


def test_translations_contain_what_they_must(call):
    status, lines, _ = call("--must", "Hund", "--must", "Schnee", "--beam-size", "6")
    assert status == 0
    assert all("Hund" in line and "Schnee" in line for line in lines)


def test_a_phrase_that_cannot_fit_is_said_line_by_line(call):
    status, lines, err = call("--must", "Hund " * 200)
    assert status == 1
    assert lines == ["", "", ""]
    assert err.count("\n") == 3
    assert "line 1: the phrases need" in err


def test_ways_that_do_not_go_together_are_refused(translator):
    for search in ({"num_candidates": 9}, {"sample": True, "must": ["x"]}, {"must": ["x"], "prefix": "y"}):
        with pytest.raises(RegardError):
            translator(LINES, **search)
    with pytest.raises(RegardError, match="did you mean 'beam_size'"):
        translator(LINES, beems=3)
