"""The page of variants names every mechanism, by family, and says what was not measured."""

import importlib.util
import json
import sys

import pytest

from regard.attention import MECHANISMS, MIXERS
from regard.catalogue import ATTENTION_ENCODERS
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
    assert page.count("| `linear` |") == 1
    for name in (*MIXERS, *ATTENTION_ENCODERS, *tables.OF_HEADS):  # the survey's models and ways to join heads, too
        assert name == "multihead" or page.count(f"| `{name}` |") == 1, name


def test_sentences_are_about_names_that_exist(tables):
    assert set(tables.GOOD_FOR) <= {*MECHANISMS, *MIXERS, *ATTENTION_ENCODERS, *tables.OF_HEADS}
    assert all(sentence.endswith(".") for sentence in tables.GOOD_FOR.values())


def test_what_was_not_measured_is_said(tables, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "read_speeds", lambda device: None)
    monkeypatch.setattr(tables, "read_scores", list)
    assert "Nothing was measured on cuda yet" in tables.expand("speed cuda")
    monkeypatch.setattr(tables, "measurement_folder", lambda: tmp_path)
    assert "Nothing was trained yet" in tables.expand("scores")
    assert "nothing was measured on cuda yet" in tables.expand("peers cuda")


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


def test_peers_are_shown_with_the_ratio_of_each_round(tables, monkeypatch, tmp_path):
    found = {"forward": 3000.0, "training": 900.0}
    ratio = {"median": 3.0, "min": 2.9, "max": 3.1}
    case = {"kind": "bigbird", "part": "encoder", "length": 4096, "aim": 3.0, "ours": found, "forward_ratio": ratio}
    cases = [case | {"transformers": {"forward": 1000.0, "training": 300.0}, "training_ratio": ratio}]
    cases.append({"kind": "bigbird", "part": "attention", "length": 4096, "aim": 3.0, "ours": found})
    cases[1]["transformers"] = {"failed": "not measured"}
    record = {"date": "2026-01-01", "gpu": "A GPU", "command": "python x", "cases": cases}
    (tmp_path / "peers-cuda.json").write_text(json.dumps(record))
    monkeypatch.setattr(tables, "measurement_folder", lambda: tmp_path)
    lines = tables.expand("peers cuda").splitlines()
    one, other = (next(line for line in lines if f"bigbird, {part}" in line) for part in ("encoder", "attention"))
    assert "| 4,096 | 3,000 | 1,000 | 3.00 (2.90 to 3.10) | 900 | 300 | 3.00 (2.90 to 3.10) | 3 |" in one
    assert "| 3,000 | - |  | 900 | - |  | 3 |" in other
