"""The page of variants names every mechanism, by family, and says what was not measured."""

import importlib.util
import sys

import pytest

from regard.attention import MECHANISMS, MIXERS
from regard.core.spec import resolve

from .blocks import ROOT


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("variants_tables", ROOT / "docs" / "variants_tables.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["variants_tables"] = module
    spec.loader.exec_module(module)
    return module


def test_every_mechanism_stands_in_its_family(tables):
    page = tables.contents()
    for name in MECHANISMS:
        family = resolve(MECHANISMS, name, "attention").traits.family
        section = page.split(f"### {family[0].upper()}{family[1:]}\n")[1].split("\n### ")[0]
        assert f"| `{name}` |" in section, f"{name} is not under {family}"


def test_sentences_are_about_names_that_exist(tables):
    assert set(tables.GOOD_FOR) <= {*MECHANISMS, *MIXERS}
    assert all(sentence.endswith(".") for sentence in tables.GOOD_FOR.values())


def test_what_was_not_measured_is_said(tables, monkeypatch):
    monkeypatch.setattr(tables, "read_speeds", lambda device: None)
    monkeypatch.setattr(tables, "read_scores", list)
    assert "Nothing was measured on cuda yet" in tables.expand("speed cuda")
    assert "Nothing was trained yet" in tables.expand("scores")


def test_cells_without_a_number_say_why(tables, monkeypatch):
    cells = {
        "256": {"forward": 0.001, "backward": 0.002, "memory": 1},
        "512": {"forward": 0.004, "backward": 0.008, "memory": 1},
        "1024": {"failed": "out of memory"},
    }
    record = {"date": "2026-01-01", "cpu": "A CPU", "batch": 1, "heads": 4, "head_dim": 32, "dtype": "float32"}
    record |= {
        "threads": 1,
        "command": "python x",
        "lengths": [256, 512, 1024],
        "cases": {"softmax": {"causal": cells}},
    }
    monkeypatch.setattr(tables, "read_speeds", lambda device: record)
    row = next(line for line in tables.speed("cpu").splitlines() if line.startswith("| `softmax`"))
    assert row == "| `softmax` | 3 | 12 | memory | 2.00 | N^2: O(N M D) |  |"
