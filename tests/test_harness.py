"""Benchmarks lose only the case that hangs, fails or crashes, and keep what was measured whatever ends them."""

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

# A contender for which nothing is computed: what happens is the name of the mechanism.
CHILD = f"""
import os, signal, sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
import harness

def turn(name="", mode="", length=0, rounds=1, model="", part="", **other):
    print("said by a library")
    if model or part:
        if "fla" in sys.argv[2] or "eager" in sys.argv[2]:
            os.kill(os.getpid(), signal.SIGKILL)
        return {{"seconds": 0.01, "rows": [[1, 2]]}} if model else {{"forward": 10.0, "training": 5.0}}
    if name == "hangs" and length > 16:
        time.sleep(60)
    if name.endswith("dies") and length > 16:
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "raises":
        return {{"failed": "error: ValueError: no"}}
    return {{"forward": 1e-3, "backward": 2e-3, "memory": 8, "rounds": 1}}

harness.serve_requests(turn)
"""


@pytest.fixture
def harness(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "harness", raising=False)
    import harness

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "MARGIN", 10.0)
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setattr(sys, "argv", [str(script)])
    return harness


def load(name):
    spec = importlib.util.spec_from_file_location(f"{name}_benchmark", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_contender_that_hangs_or_dies_says_why_and_begins_again(harness, capfd):
    child = harness.Child("one", sys.argv[0], [], threads=1)
    try:
        assert child.try_ask(20, name="good")["forward"] == 1e-3
        assert "ended with status 1" in child.try_ask(0.3, name="hangs", length=32)["failed"]
        assert 'child.py", line ' in capfd.readouterr().err  # where it hangs
        assert child.try_ask(20, name="hangs", length=16)["backward"] == 2e-3
        assert "ended with status -9" in child.try_ask(20, name="dies", length=32)["failed"]
        with pytest.raises(SystemExit, match="'one' failed: error: its process ended"):
            child.ask(name="good")
        turns = harness.rounds([child], 2, 0.0, seconds=20, name="dies", length=32)
        assert [*turns[0]["one"]] == [*turns[1]["one"]] == ["failed"]
    finally:
        child.kill()


NAMES = ("softmax", "hangs", "dies", "raises", "flex_good", "flex_dies", "flex_other", "linear")


def settings(**other):
    common = {"device": "cpu", "dtype": "float32", "batch": 1, "heads": 2, "head_dim": 8, "memory": 1.0, "limit": 1.0}
    more = {"lengths": [16, 32, 64], "rounds": 1, "minutes": 1.0, "patience": 20.0, "quick": False}
    return SimpleNamespace(**(common | more | other))


@pytest.fixture
def variants(harness, monkeypatch):
    module = load("variants")
    monkeypatch.setattr(module, "modes", lambda name: ["bidirectional"])
    monkeypatch.setattr(module, "compiles", lambda name: name.startswith("flex"))
    monkeypatch.setattr(module, "report", lambda record: "")
    monkeypatch.setattr(module, "names", lambda: [*NAMES])
    return module


def measured(folder):
    """Return how many lengths were measured of each contender."""
    cases = json.loads((folder / "variants/speed-cpu.json").read_text())["cases"]
    return {name: sum("failed" not in cell for cell in case["bidirectional"].values()) for name, case in cases.items()}


def test_a_case_that_hangs_or_crashes_loses_only_itself(variants, tmp_path, capsys):
    record = {"cases": {}}
    variants.GPURun(record, variants.names(), settings(patience=0.4)).run()
    whole = {"softmax": 3, "linear": 3, "flex_good": 3, "flex_other": 3}
    assert measured(tmp_path) == whole | {"hangs": 1, "dies": 1, "raises": 0, "flex_dies": 1}
    assert record["cases"]["raises"]["bidirectional"]["32"]["failed"] == "left out (error: ValueError: no at 16)"
    assert "not complete, run it again: hangs (bidirectional), dies" in capsys.readouterr().out

    # the next run begins with what has not failed, and does not measure again what is there
    record["cases"]["linear"]["bidirectional"].pop("64")
    variants.GPURun(record, variants.names(), settings(patience=0.4)).run()
    lines = [line.split("] ")[1].split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "linear, bidirectional, 64"
    assert "softmax, bidirectional, 16" not in lines


def test_turns_on_a_cpu_survive_a_crash_and_are_written_one_by_one(variants, tmp_path):
    record = {"cases": {}}
    variants.CPURun(record, ["softmax", "hangs", "dies", "linear"], settings(patience=0.4)).run()
    assert measured(tmp_path) == {"softmax": 3, "hangs": 1, "dies": 1, "linear": 3}
    with pytest.raises(SystemExit, match=r"was measured with \{'heads': 2\}"):
        variants.CPURun(record, ["linear"], settings(heads=4)).run()


@pytest.mark.long
def test_a_run_that_is_ended_keeps_its_cells_and_leaves_no_process(variants, tmp_path):
    script = tmp_path / "whole.py"
    script.write_text(
        f"""
import sys
sys.path[:0] = [{str(BENCHMARKS)!r}]
import harness, variants
from pathlib import Path
from types import SimpleNamespace
harness.RESULTS = Path({str(tmp_path)!r})
variants.modes, variants.names = lambda name: ["bidirectional"], lambda: ["softmax", "hangs"]
variants.compiles = lambda name: False
sys.argv = [{sys.argv[0]!r}]
harness.exit_on_sigterm()
variants.GPURun({{"cases": {{}}}}, ["softmax", "hangs"], SimpleNamespace(**{vars(settings(patience=60.0))!r})).run()
"""
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    while "hangs, bidirectional, 16" not in process.stdout.readline():
        assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    process.stdout.close()
    assert measured(tmp_path) == {"softmax": 3, "hangs": 1}
    assert children
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def test_scores_survive_what_hangs_or_crashes(harness, tmp_path, capsys, monkeypatch):
    """A run leaves its file; one that hangs or crashes leaves none, and is tried again by the next command."""
    scores = load("variant_scores")
    script = tmp_path / "run.py"
    script.write_text(
        f"""
import json, os, pathlib, sys, time
task, spec, seed = sys.argv[1:]
if spec == "linear":
    time.sleep(60)
if spec == "nystrom":
    print("a last word", flush=True)
    os.kill(os.getpid(), 9)
pathlib.Path({str(tmp_path)!r}, f"{{task}}-{{spec}}-{{seed}}").write_text("{{}}")
"""
    )
    monkeypatch.setattr(scores, "file_of", lambda *job: tmp_path / "-".join(map(str, job)))
    jobs = [("copy", spec, 1) for spec in ("linear", "nystrom", "softmax", "performer")]
    args = SimpleNamespace(minutes=1.0, patience=2.0, jobs=2, screen=False, memory=10.0)
    scores.run_all(jobs, [sys.executable, str(script)], args)
    assert {file.name for file in tmp_path.glob("copy-*")} == {"copy-softmax-1", "copy-performer-1"}
    assert "ended with status -9: a last word" in capsys.readouterr().out
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    assert "no lossless CIFAR-10" in scores.find_fault("pixels_screen")
    assert scores.find_fault("recall_screen") == ""


def test_dense_and_peers_write_every_case_and_do_not_repeat_it(harness, tmp_path, capsys):
    dense, peers = load("dense"), load("variant_peers")
    common = {
        "device": "cpu",
        "dtype": "float32",
        "batch": 1,
        "threads": 1,
        "rounds": 1,
        "minutes": 1,
        "patience": 20.0,
    }
    more = {"what": "inference", "models": ["detr_r50"], "again": False, "quick": False, "spend": 0.01}
    args = SimpleNamespace(**common, **more, contenders=["regard", "transformers", "transformers-eager"])
    dense.compare(args)
    args.contenders = ["regard", "transformers"]
    args.models = ["detr_r50", "dpt_base"]
    dense.compare(args)
    found = json.loads((tmp_path / "dense-cpu.json").read_text())["cases"]
    assert [case["model"] for case in found] == ["detr_r50", "dpt_base"]
    assert found[0]["contenders"].keys() == {"regard", "transformers"}
    assert found[0]["regard / transformers"]["median"] == 1.0
    assert capsys.readouterr().out.count("written") == 2

    cases = [("nystrom", "encoder", 64), ("linear", "causal", 64), ("linear", "encoder", 64)]
    peers.compare(cases, args)
    peers.compare(cases[:1], args)
    nystrom, linear = json.loads((tmp_path / "variants/peers-cpu.json").read_text())["cases"]
    assert nystrom["forward_ratio"]["median"] == 1.0
    assert linear["ours"] == {"forward": 10.0, "training": 5.0}
    assert linear["fla"]["failed"].startswith("error: its process ended")
    assert not peers.is_complete(linear)
    assert capsys.readouterr().out.count("encoder 64:") == 1
