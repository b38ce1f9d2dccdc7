"""The page of positional encodings: its tables are those of the records, and the benchmark takes every encoding."""

import importlib.util
import json
import sys

import pytest
import torch

from regard import catalogue
from regard.core.errors import RegardError

from .blocks import ROOT


def load(path, monkeypatch):
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables(monkeypatch):
    return load(ROOT / "docs" / "positions_tables.py", monkeypatch)


@pytest.fixture
def benchmark(monkeypatch):
    return load(ROOT / "benchmarks" / "positions.py", monkeypatch)


def case(task, name, seed, **scores):
    return {"task": task, "encoding": name, "seed": seed, "scores": scores}


def test_a_table_has_mean_and_spread_of_the_seeds_and_says_what_was_refused(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.expand("back") == tables.expand("conditions") == "(not measured yet)"
    cases = [case("back", "a", 1, x=90.0, y=None), case("back", "a", 2, x=92.0, y=None), case("text", "a", 1, x=3.0)]
    (tmp_path / "sizes.json").write_text(json.dumps({"cases": cases}))
    assert tables.expand("back").splitlines()[0] == "| accuracy % | x | y | seeds |"
    assert tables.expand("back").splitlines()[2] == "| a | 91.0 (90.0 to 92.0) | - | 2 |"
    assert tables.expand("text").splitlines()[2:] == ["| a | 3.00 | 1 |"]


def test_the_records_have_every_encoding_once_a_seed(tables, benchmark):
    known = {f"{row['encodes']}/{row['name']}" for row in catalogue.list("positions")}
    assert set(benchmark.encodings()) == known
    cases = [(c["task"], c["encoding"], c["seed"]) for c in tables.read("sizes")["cases"]]
    assert len(cases) == len(set(cases))
    for task in benchmark.TASKS:
        assert {name for each, name, _ in cases if each == task} in (set(), known)


def test_every_encoding_fits_the_benchmarks_model_and_causal_outputs_do_not_see_the_future(benchmark):
    for name, encoding in benchmark.encodings().items():
        torch.manual_seed(0)
        part = benchmark.make(*encoding, (1, 12), causal=True)
        model = benchmark.Model(part, torch.nn.Embedding(5, benchmark.WIDTH), 5, causal=True).eval()
        tokens = torch.randint(5, (2, 12))
        changed = tokens.clone()
        changed[:, 7:] = (changed[:, 7:] + 1) % 5
        with torch.no_grad():
            before, after = model(tokens, (1, 12)), model(changed, (1, 12))
        torch.testing.assert_close(before[:, :7], after[:, :7], msg=name)
        assert not torch.allclose(before[:, 7:], after[:, 7:]), name


def test_a_size_that_is_refused_has_no_score(benchmark):
    def score(size):
        if size > 32:
            raise RegardError("too long")
        return float(size)

    assert benchmark.at_sizes("back", score) == {"32": 32.0, "64": None, "128": None}
