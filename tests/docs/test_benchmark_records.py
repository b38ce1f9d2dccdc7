"""Every benchmark case says when, with which command and on how busy a host it was measured."""

import importlib.util
import json
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def harness(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("benchmark_harness", BENCHMARKS / "harness.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "some.py"), "--fast"])
    return module


def test_a_case_keeps_its_own_conditions_and_others_get_those_of_the_run(harness):
    kept = {"date": "2026-01-01", "command": "python benchmarks/some.py --models old", "versions": {}, "load": 0.1}
    record = harness.machine() | {"cases": [{"n": 1, "measured": kept}, {"n": 2} | harness.lap()], "layers": [{"n": 3}]}
    found = json.loads(harness.write("some.json", record).read_text())
    assert found["cases"][0]["measured"] == kept
    for case in (found["cases"][1], found["layers"][0]):
        measured = case["measured"]
        assert measured["command"] == "python benchmarks/some.py --fast" == found["command"]
        assert measured["date"] == found["date"]
        assert measured["versions"] == found["versions"]
        assert measured["load"] >= 0


def test_host_load_leaves_out_what_the_benchmark_itself_uses(harness, monkeypatch):
    monkeypatch.setattr(harness.os, "getloadavg", lambda: (3.0, 0, 0))
    monkeypatch.setattr(harness, "_own_cpu_seconds", lambda: 10.0)
    load = harness.HostLoad()
    monkeypatch.setattr(time, "monotonic", lambda: load.began + 100)
    assert load.read() == 3.0
    monkeypatch.setattr(harness, "_own_cpu_seconds", lambda: 10.0 + 200)  # two cores all the time
    assert load.read() == 1.0
    monkeypatch.setattr(harness, "_own_cpu_seconds", lambda: 10.0 + 900)
    assert load.read() == 0.0


def test_cpu_time_of_running_children_counts(harness):
    before = harness._own_cpu_seconds()
    child = harness.subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        limit = time.monotonic() + 60
        while harness._own_cpu_seconds() - before < 0.05:
            assert time.monotonic() < limit
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()


def test_a_timing_on_a_busy_host_is_named_when_written(harness, monkeypatch, capsys):
    record = {"cases": [{"measured": {"load": 2.4}}, {"measured": {"load": 0.2}}]}
    harness.write("busy.json", record)
    assert "a host load of up to 2.4" in capsys.readouterr().err
    harness.write("quiet.json", {"cases": [{"measured": {"load": 2.0}}]})
    assert capsys.readouterr().err == ""


def test_a_record_without_a_list_is_a_case_itself_and_named_cases_are_many(harness):
    harness.write("one.json", harness.machine() | {"seconds": 1.0, "names": ["a", "b"]})
    found = json.loads((harness.RESULTS / "one.json").read_text("utf-8"))
    assert found["measured"].keys() == {"command", "date", "versions", "load"}
    harness.write("named.json", harness.machine() | {"lengths": [256], "cases": {"a": {}, "b": {}}})
    found = json.loads((harness.RESULTS / "named.json").read_text("utf-8"))
    assert "measured" not in found
    assert all(case["measured"]["load"] >= 0 for case in found["cases"].values())


def test_every_recorded_case_says_its_conditions_or_why_not(harness):
    """Command, date, versions and host load; what was not kept is null, with a sentence about where it comes from."""
    files = sorted((BENCHMARKS / "results").rglob("*.json"))
    assert len(files) > 40
    for file in files:
        record = json.loads(file.read_text("utf-8"))
        for case in harness.cases(record):
            about = case["measured"]
            assert {"command", "date", "versions", "load"} <= about.keys(), file
            known = about["command"] and about["versions"] and about["load"] is not None
            assert known or about.get("source"), f"{file}: not everything was kept, and nothing says why"
            own = (record.get("date", about["date"]), record.get("command", about["command"]))
            is_other = (about["date"], about["command"]) != own
            assert not is_other or about.get("source") or record.get("merged"), f"{file} is not marked as merged"


def test_every_timing_of_a_busy_host_is_marked_on_its_page(harness, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS.parent / "docs")
    import make_results
    import variants_tables

    for file in sorted((BENCHMARKS / "results").rglob("*.json")):
        record = json.loads(file.read_text("utf-8"))
        if max(case["measured"]["load"] or 0 for case in harness.cases(record)) <= harness.MAX_LOAD:
            continue
        if file.parent == BENCHMARKS / "results":
            page = "\n".join(make_results.benchmarks_section({file.stem: record}))
        elif file.stem.startswith("speed-"):
            page = variants_tables.speed(file.stem.removeprefix("speed-"))
        else:  # scores: no timing of them is shown
            continue
        assert "busy" in page, file
