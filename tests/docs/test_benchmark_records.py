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


@pytest.mark.parametrize("file", sorted((BENCHMARKS / "results").glob("*.json")), ids=lambda file: file.stem)
def test_every_recorded_case_has_its_command_and_date(file):
    record = json.loads(file.read_text("utf-8"))
    lists = [rows for rows in record.values() if isinstance(rows, list) and rows and isinstance(rows[0], dict)]
    for case in (case for rows in lists for case in rows):
        assert {"command", "date", "versions"} <= case["measured"].keys()
