"""Cases of a benchmark (benchmarks/harness.py): each is written when it is done, one that fails loses only itself."""

import importlib.util
import json

import pytest

from tests.docs.blocks import ROOT

CHILD = """
import json, sys, time
for line in sys.stdin:
    case = json.loads(line)["request"]["case"]
    if case == "dies":
        sys.exit(3)
    if case == "hangs":
        time.sleep(600)
    print("\\x02" + json.dumps({"ms": len(case)}), flush=True)
"""


@pytest.fixture
def harness(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmark_harness", ROOT / "benchmarks" / "harness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    (tmp_path / "child.py").write_text(CHILD)
    return module


def test_a_case_that_dies_or_hangs_loses_only_itself_and_the_rest_goes_on_later(harness, tmp_path, capsys):
    asked, started = [], []

    def case(name):
        def run(children):
            asked.append(name)
            return children[0].ask(case=name)

        return harness.Case("cases", {"case": name}, run)

    def start():
        started.append(harness.Child("one", str(tmp_path / "child.py"), [], 1))
        return [started[-1]]

    def run(*names, machine="a", **settings):
        asked.clear()
        harness.run_cases("some.json", {"cpu": machine}, [case(name) for name in names], start, **settings)
        return [row["case"] for row in json.loads((tmp_path / "some.json").read_text())["cases"]]

    names = ("first", "dies", "hangs", "last")
    assert run(*names, seconds=1.0) == ["first", "last"]
    assert len(started) == 3
    assert all(child.process.poll() is not None for child in started)
    said = capsys.readouterr().out
    assert "dies: failed: the contender 'one' failed: error: its process ended with status 3" in said
    assert "hangs: failed" in said
    assert run("first", "more", "last", minutes=-1) == ["first", "last"]
    assert asked == []
    assert "more: no time was left" in capsys.readouterr().out
    assert run("first", "more", "last") == ["first", "last", "more"]
    assert asked == ["more"]
    assert run("last", machine="b") == ["last"]
    assert "begun anew: new or other cpu" in capsys.readouterr().out
    before = (tmp_path / "some.json").read_bytes()
    harness.run_cases("some.json", {"cpu": "c"}, [case("first")], start, keep=False)
    assert (tmp_path / "some.json").read_bytes() == before
