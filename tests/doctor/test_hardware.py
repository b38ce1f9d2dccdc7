"""Measuring the machine with a fake child process, so that illegal instructions happen on every machine."""

import json
import os
from pathlib import Path

import pytest

from regard import doctor
from regard.doctor import hardware, host, measure
from regard.runtime import hardware as core
from tests.stories.command import run as command

# A fake of runtime/probe.py. It crashes in bfloat16, as on a CPU that lacks an advertised instruction set, unless the
# setting is one that helps; all other results are fixed.
CHILD = """
import json, os, signal, sys
log, helps, fate = {log!r}, {helps!r}, {fate!r}
FOUND = {{
    "works": {{"error": 1e-9, "finite": True, "epsilon": 1e-7}}, "peak": {{"gflops": 100.0, "size": 512}},
    "copy": {{"gbytes": 10.0}}, "block": {{"seconds": 0.5, "float32": 1.0, "tokens": 1}},
    "threads": {{"1": {{"small": 9.0, "large": 50.0}}, "2": {{"small": 1.0, "large": 99.0}}}},
    "attention": {{"dtype": "float32", "compiled": False}}, "rank": {{"joined": 0.5, "right": True, "gbytes": 1.0}},
    "devices": {{"torch": "9.9", "threads": 2, "devices": []}},
}}
with open(log, "a") as file:
    file.write(os.environ.get("ONEDNN_MAX_CPU_ISA", "-") + " " + "; ".join(sys.argv[2:]) + chr(10))
for word in sys.argv[2:]:
    print("regard-begin " + word, flush=True)
    if word.endswith("bfloat16") and os.environ.get("ONEDNN_MAX_CPU_ISA") not in helps:
        if fate == "wrong":
            print("regard-done " + json.dumps({{"probe": word, "result": FOUND[word.split()[0]] | {{"error": 0.5}}}}))
            continue
        if fate == "refused":
            print("regard-failed " + json.dumps({{"probe": word, "why": "no such kernel"}}), flush=True)
            continue
        if fate == "hangs":
            import time; time.sleep(60)
        os.kill(os.getpid(), getattr(signal, fate))
    print("regard-done " + json.dumps({{"probe": word, "result": FOUND[word.split()[0]]}}), flush=True)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Replace the probes by the fake; returns its log."""

    def put(helps=(), fate="SIGILL"):
        (tmp_path / "child.py").write_text(CHILD.format(log=str(tmp_path / "log"), helps=list(helps), fate=fate))
        monkeypatch.setattr(core.probe, "__file__", str(tmp_path / "child.py"))
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
        return lambda: (tmp_path / "log").read_text().splitlines()

    return put


def text(found):
    return dict(hardware.lines(found))


def test_crashing_dtype_is_reported_with_the_setting_that_helps(child):
    child(helps=["AVX512_CORE_BF16"])
    found = measure.measure(quick=True)
    assert text(found)["bfloat16"] == (
        "crashes the process (illegal instruction); works with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 set before torch is "
        "imported"
    )
    assert found.choice == ("float32", "bfloat16 does not work here")
    assert text(found)["float32"] == "100 GFLOP/s"


def test_all_settings_are_tried(child):
    log = child(helps=["AVX2"])
    found = measure.measure(quick=True)
    assert found.devices[0].dtypes[1].setting == "ONEDNN_MAX_CPU_ISA=AVX2"
    assert [line.split()[0] for line in log()][-3:] == ["AVX512_CORE_BF16", "AVX512_CORE", "AVX2"]
    child(helps=[])
    found = measure.measure(quick=True)
    assert text(found)["bfloat16"] == "crashes the process (illegal instruction)"


def test_remaining_probes_run_after_a_crash(child):
    log = child(helps=[])
    found = core.run_probes(["works cpu float32", "works cpu bfloat16", "peak cpu bfloat16", "copy cpu"])
    assert [one.crashed for one in found.values()] == [False, True, True, False]
    assert [line.partition(" ")[2] for line in log()] == [
        "works cpu float32; works cpu bfloat16; peak cpu bfloat16; copy cpu",
        "peak cpu bfloat16; copy cpu",
        "copy cpu",
    ]


@pytest.mark.parametrize(
    ("fate", "why", "crashed"),
    [
        ("SIGILL", "illegal instruction", True),
        ("SIGSEGV", "segmentation fault", True),
        ("refused", "no such kernel", False),
    ],
)
def test_probe_failure_reason(child, fate, why, crashed):
    child(helps=[], fate=fate)
    one = core.run_probes(["works cpu bfloat16"])["works cpu bfloat16"]
    assert (one.why, one.crashed, one.result) == (why, crashed, None)


def test_hanging_child_is_killed(child):
    child(helps=[], fate="hangs")
    found = core.run_probes(["works cpu bfloat16", "copy cpu"], timeout=1)
    assert found["works cpu bfloat16"].why == "took over 1 s"
    assert found["copy cpu"].result is not None


def test_inaccurate_dtype_is_not_used(child):
    child(helps=[], fate="wrong")
    found = measure.measure(quick=True)
    assert "wrong results" in text(found)["bfloat16"]
    assert found.dtype == "float32"
    assert not core.supports_dtype("bfloat16")


def test_active_setting_is_compared_with_none(child, monkeypatch):
    child(helps=["AVX512_CORE_BF16"])
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    found = measure.measure(folder=Path(os.environ["REGARD_CACHE"]))
    assert "only with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, which is set" in text(found)["bfloat16"]
    assert "illegal instruction" in text(found)["bfloat16"]
    assert found.dtype == "bfloat16"


def test_choice_follows_from_measurements(child):
    child(helps=[None])
    found = measure.measure()
    assert found.choice == ("bfloat16", "a Transformer block is trained 2 times as fast in bfloat16")
    assert found.threads == (1, 2)
    assert text(found)["choice"].endswith("; 2 threads (1 to decode)")
    assert text(found)["ranks"].startswith("2 local processes joined")
    assert "MB/s written and flushed" in text(found)["disk"]


def test_measurements_are_cached_until_the_machine_changes(child, monkeypatch):
    log = child(helps=[None])
    first = doctor.machine(quick=True)
    num_probes = len(log())
    assert doctor.machine(quick=True) == first
    assert len(log()) == num_probes  # nothing was measured again
    assert doctor.machine(quick=True, fresh=True).devices == first.devices
    assert len(log()) == 2 * num_probes
    monkeypatch.setattr(core, "cpu_name", lambda: "another")
    assert measure.load_measured() is None


def test_damaged_or_unwritable_cache(child, monkeypatch, tmp_path):
    child(helps=[None])
    doctor.machine(quick=True)
    (file,) = (tmp_path / "cache").glob("*.json")
    for content in ("", "{", "[]", '{"format": 99}', '{"format": 1, "machine": {"system": 3}}'):
        file.write_text(content)
        assert measure.load_measured() is None
    assert doctor.machine(quick=True).cores > 0
    assert measure.load_measured() is not None
    monkeypatch.setenv("REGARD_CACHE", str(file))  # a file where a folder should be
    assert core.write_cache("machine", 1) is None
    assert doctor.machine(quick=True).cores > 0


def test_choose_dtype_probes_once(child):
    import torch

    log = child(helps=[])
    assert core.choose_dtype("cpu") == torch.float32
    assert core.choose_dtype("cpu") == torch.float32
    assert len(log()) == 1
    child(helps=[None])
    (core.cache_dir() / f"machine-{core.machine_key()}.json").unlink()
    assert core.choose_dtype("cpu") == torch.bfloat16
    assert core.choose_dtype("meta") == torch.float32


def test_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "cannot be written" in host.disk_speed(tmp_path / "file" / "below").why
    found = host.disk_speed(tmp_path / "not" / "there" / "yet", size=2**22)
    assert found.mbytes > 0
    assert not (tmp_path / "not").exists()


def test_broken_compiler_is_reported(monkeypatch, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'x.cpp:1: fatal error: Python.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    found = host.find_compiler()
    assert not found.works
    assert found.why == "Python.h: No such file"
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CXX")
    assert "no C++ compiler found" in host.find_compiler().why


@pytest.mark.long
def test_two_processes_join():
    found = host.join_two_processes()
    assert (found.joined, found.why) == (2, "")
    assert found.gbytes > 0


def test_doctor_command_as_json(tmp_path):
    done = command("doctor", "--quick", "--json", REGARD_CACHE=str(tmp_path))
    assert (done.status, done.err) == (0, "")
    values = json.loads(done.out)
    assert values["devices"][0]["name"] == "cpu"
    assert values["devices"][0]["dtypes"][0]["works"] is True
    assert values["choice"]["dtype"] in ("float32", "bfloat16")
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.long
def test_doctor_command_as_text(tmp_path):
    done = command("doctor", "--out", tmp_path, REGARD_CACHE=str(tmp_path / "cache"))
    assert (done.status, done.err) == (0, "")
    labels = [line.split()[0] for line in done.lines]
    for label in ("machine", "float32", "bfloat16", "float16", "float64", "copy", "attention", "threads", "compile",
                  "disk", "ranks", "choice", "kept"):  # fmt: skip
        assert label in labels
    assert "2 local processes joined" in done.out
