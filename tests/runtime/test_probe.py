"""The probes of the child process, run here where they are safe."""

import json

import pytest
import torch

from regard.runtime import hardware, probe


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(probe, "SECONDS", 0.001)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_working_dtype_is_accurate(dtype):
    found = probe.works("cpu", dtype)
    assert hardware.is_accurate(found)
    assert not hardware.is_accurate(found | {"finite": False})
    assert not hardware.is_accurate(found | {"error": 1e-3})


def test_speeds_are_positive_numbers_with_their_sizes():
    assert probe.peak("cpu", "float32")["gflops"] > 0
    assert probe.copy("cpu")["gbytes"] > 0
    found = probe.block("cpu", "float32")
    assert min(found["seconds"], found["float32"]) > 0
    assert hardware.speedup(hardware.ProbeResult(found)) == found["float32"] / found["seconds"]
    assert hardware.speedup(hardware.ProbeResult(why="no")) == 0
    threads = probe.threads("cpu", "2")
    assert set(threads) == {"1", "2"}
    assert min(one[kind] for one in threads.values() for kind in ("small", "large")) > 0


def test_kernels_that_a_cpu_has_run_and_others_are_refused():
    for name in ("math", "flash"):
        assert probe.attention("cpu", name)["dtype"] == "float32"
    with pytest.raises(RuntimeError):
        probe.attention("cpu", "cudnn")


def test_probe_prints_begin_and_end_lines(capfd, monkeypatch):
    monkeypatch.setitem(probe.PROBES, "good", lambda: {"x": 1})
    monkeypatch.setitem(probe.PROBES, "bad", lambda word: 1 / 0)
    assert probe.main(["0.001", "good", "bad cpu"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "regard-begin good"
    assert json.loads(lines[1].removeprefix(probe.DONE)) == {"probe": "good", "result": {"x": 1}}
    assert json.loads(lines[3].removeprefix(probe.FAILED)) == {"probe": "bad cpu", "why": "division by zero"}


def test_wrong_attention_results_are_reported(monkeypatch):
    right = torch.nn.functional.scaled_dot_product_attention
    for spoil in (lambda out: out * float("nan"), lambda out: out * 1.5):
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.nn.functional, "scaled_dot_product_attention", lambda *a, s=spoil, **k: s(right(*a, **k))
            )
            with pytest.raises(RuntimeError, match=r"wrong results, off by [\w.+-]+$"):
                probe.attention("cpu", "math")
            patch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "75")
            with pytest.raises(RuntimeError, match="unset it"):
                probe.attention("cpu", "math")
