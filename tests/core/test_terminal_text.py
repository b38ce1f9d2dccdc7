"""Tables and documents fit the width of a terminal, and lose nothing."""

import pytest

from regard.core.terminal_text import fit_table, printable, reflow, wrap

ROWS = [
    {
        "name": "softmax",
        "description": "a mean of the values, weighted by how well each key matches",
        "cost": "O(N M D)",
    },
    {"name": "synthesizer_factorised_random", "description": "learned weights", "cost": "O(N M (E + r))"},
]


@pytest.mark.parametrize("width", [48, 60, 80, 200])
def test_a_table_fits_and_keeps_every_word(width):
    table = fit_table(ROWS, ("name", "description", "cost"), width)
    lines = table.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["name", "description", "cost"]
    for row in ROWS:
        assert all(word in table for value in row.values() for word in value.split())
    assert any(line.strip() == "synthesizer_factorised_random" for line in lines)  # too long for its column


def test_a_paragraph_that_was_broken_for_120_characters_is_broken_anew():
    text = "Scores between all pairs, a softmax over the keys, and a mean of the values that is linear in them, as for "
    text += "all others\nof this table.\n\nA new paragraph.\n    key    what it means\n    other  something else\n"
    found = reflow(text, 60).splitlines()
    assert max(map(len, found)) <= 60
    assert " ".join(found[:3]).endswith("as for all others of this table.")
    assert found[-3:] == ["A new paragraph.", "    key    what it means", "    other  something else"]


def test_what_a_word_means_is_wrapped_under_its_beginning():
    found = reflow("    causality  strict: no output changes with its future", 40).splitlines()
    assert found == ["    causality  strict: no output changes", "               with its future"]


def test_a_markdown_table_is_shown_without_its_bars():
    table = "| | |\n|---|---|\n| BLEU | 46.3 (`a|b`) |\n| data | sentences of everyday life in two languages |"
    found = reflow(table, 40).splitlines()
    assert found == ["BLEU  46.3 (`a|b`)", "data  sentences of everyday life in two", "      languages"]


def test_a_table_that_is_too_wide_becomes_one_entry_a_row():
    lines = ["    size   width  heads  layers  parameters", "    base   512    8      6       65,000,000"]
    text = "\n".join([*lines, "    large  1024   16     6       213,000,000"])
    assert reflow(text, 80) == text
    assert reflow(text, 36).splitlines() == [
        "    base   width 512, heads 8,",
        "           layers 6, parameters",
        "           65,000,000",
        "    large  width 1024, heads 16,",
        "           layers 6, parameters",
        "           213,000,000",
    ]


def test_what_drives_a_terminal_is_spelled_out():
    assert printable("a\x1b[2Jb\x9b\u202ec\td\n", kept="\n\t") == "a\\x1b[2Jb\\x9b\\u202ec\td\n"
    assert printable("Ünï 日本") == "Ünï 日本"


def test_a_number_keeps_its_percent_sign_and_a_message_its_paths():
    found = wrap("noted of French 99 %, German 99 %, Czech 100 %", 18)
    assert found == ["noted of French", "99 %, German 99 %,", "Czech 100 %"]
    path = "/a/rather/long/path/to/a/file.png"
    assert wrap(f"regard: cannot read {path} at all", 20, hanging=8) == [
        "regard: cannot read",
        f"        {path}",
        "        at all",
    ]


def test_lines_of_formulas_stay_lines_however_long_they_are():
    first = (
        f"    reformer    the same with k_m = q_m, over the chunk of n {'and more ' * 4}before     O(r N (log N + w D))"
    )
    text = f"{first}\n                bucket(x) = argmax [x R; -x R]"
    assert len(first) > 115
    found = reflow(text, 60).splitlines()
    assert [found[0][:24], found[-1]] == ["    reformer    the same", "                bucket(x) = argmax [x R; -x R]"]
    assert found[-2].strip() == "O(r N (log N + w D))"


def test_formulas_below_each_other_are_no_table_whose_first_row_names_the_columns():
    lines = ["    softmax  o = exp(q k) v   / exp(q k)   O(N M)", "    linear   o = f(q) f(k) v  / f(q) f(k)  O(N + M)"]
    found = reflow("\n".join(lines), 40).splitlines()
    assert found[0].startswith("    softmax  o = exp(q k) v")
    assert next(line for line in found if "linear" in line).startswith("    linear   o = f(q) f(k) v")
