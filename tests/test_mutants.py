"""The script that mutates the sources: every mutant is Python, differs in one place, and the choice is seeded."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "mutants.py"
SOURCE = '''"""Docs of 1 + 1."""

LIMIT = 3


def halve(x: int = 4) -> "list[0]":
    """Half of x > 0."""
    if not x or x < LIMIT:
        raise ValueError(f"{x + 1}")
    for n in range(2):
        if n == x:
            continue
        x -= 1
    print(max(x, 5), "ä" * 2)
    return x / 2 if True else -x
'''


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutants"]


def test_every_kind_of_change_is_made_once_and_is_python(mutants):
    source = SOURCE.encode()
    found = list(mutants.find_mutants("a.py", source))
    for mutant in found:
        changed = mutant.apply(source)
        compile(changed, "a.py", "exec")
        assert changed.count(b"\n") == source.count(b"\n")
        old, new = (text.decode().splitlines() for text in (source, changed))
        assert [n for n, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b] == [mutant.line]
    changes = {(mutant.line, mutant.old, mutant.new) for mutant in found}
    assert changes == {
        (3, "3", "4"), (3, "3", "2"), (6, "4", "5"), (6, "4", "3"),
        (8, "not x or x < LIMIT", "(not x and x < LIMIT)"), (8, "not x", "(x)"), (8, "x < LIMIT", "(x <= LIMIT)"),
        (9, 'raise ValueError(f"{x + 1}")', "pass"), (10, "2", "3"), (10, "2", "1"), (11, "n == x", "(n != x)"),
        (12, "continue", "break"), (13, "x -= 1", "pass"), (13, "1", "2"), (13, "1", "0"),
        (14, 'print(max(x, 5), "ä" * 2)', "pass"), (14, "max(x, 5)", "min(x, 5)"), (14, "5", "6"), (14, "5", "4"),
        (14, '"ä" * 2', "('ä' / 2)"), (14, "2", "3"), (14, "2", "1"),
        (15, "return x / 2 if True else -x", "return None"),
        (15, "x / 2 if True else -x", "(-x if True else x / 2)"), (15, "x / 2", "(x * 2)"), (15, "2", "3"),
        (15, "2", "1"), (15, "True", "False"), (15, "-x", "(x)"),
    }  # fmt: skip


def test_tests_are_those_of_the_statement_or_of_the_file_where_it_runs_at_import(mutants):
    lines = {mutant.line: mutant.lines for mutant in mutants.find_mutants("a.py", SOURCE.encode())}
    assert lines[3] == lines[6] == ()  # a constant, a default
    assert lines[8] == (8,)  # the head of the condition alone
    assert lines[13] == (13,)


@pytest.mark.long
def test_the_choice_is_seeded_and_the_same_number_from_each_package(mutants):
    one, same, other = (mutants.choose_mutants(12, seed) for seed in (0, 0, 1))
    assert one == same != other
    for package in mutants.PACKAGES:
        assert sum(f"/regard/{package}/" in mutant.file for mutant in one) == 2
    assert len({(mutant.file, mutant.line) for mutant in one}) == len({mutant.id for mutant in one}) == 12


def test_a_tree_has_the_mutated_file_and_links_to_the_rest(mutants, tmp_path):
    (mutant,) = mutants.choose_mutants(1, 0)
    source = mutants.make_tree(tmp_path / "tree", mutant)
    file = source / Path(mutant.file).relative_to("src")
    assert not file.is_symlink()
    assert file.read_bytes() == mutant.apply((mutants.ROOT / mutant.file).read_bytes())
    assert (source / "regard" / "zoo").is_symlink()
    others = [path for path in file.parent.iterdir() if path != file]
    assert all(path.is_symlink() for path in others)
