"""The benchmark of training runs, on a tiny model."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "train.py"


def ran(*words):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--tiny", "--threads", "1", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout


@pytest.mark.long
def test_ours_runs_beside_plain_pytorch_with_options_of_its_own():
    out = ran("--contenders", "regard,nanogpt,regard+plain+eager")
    for name in ("regard", "nanogpt", "regard+plain+eager"):
        (line,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
        assert len(line.split()) == 8
    losses = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.strip().startswith("regard")}
    assert len(set(losses.values())) == 1  # options change the speed, not what is learned
    assert "written" not in out


def test_an_unknown_option_is_refused():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--tiny", "--contenders", "regard+turbo"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode
    assert "no contender regard+turbo" in done.stderr


@pytest.mark.long
def test_transformers_and_the_base_transformer_run_too():
    pytest.importorskip("transformers")
    assert "transformers" in ran()
    assert "torch.nn.Transformer" in ran("--model", "transformer")
