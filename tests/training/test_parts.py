"""Averages, random streams and progress, each by itself."""

import io
import json
import math
import re
import time

import pytest
import torch
from torch import nn

from regard.core.errors import BadInput
from regard.training import rng
from regard.training.checkpoint.checkpoints import save_weights
from regard.training.loggers.progress import MetricsFile, Progress, format_seconds, say_if_slow
from regard.training.weight_averaging import ExponentialMovingAverage, average_weights, copy_weights, named_tensors

# -- averages ----------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


def test_tied_weights_have_one_name_and_scratch_has_none():
    assert named_tensors(Tied()).keys() == {"a.weight", "count"}


def test_moving_average_is_its_formula_and_forgets_the_start_early():
    model = Tied()
    ema = ExponentialMovingAverage(model, 0.9)
    want = model.a.weight.detach().clone()
    for step in range(1, 60):
        with torch.no_grad():
            model.a.weight.add_(torch.randn(2, 2))
        ema.update(ema.decay_at(step))
        decay = min(0.9, (1 + step) / (10 + step))
        want = decay * want + (1 - decay) * model.a.weight.detach()
    torch.testing.assert_close(ema.averages["a.weight"], want)


def test_mean_of_files_is_the_mean_of_their_floats(tmp_path):
    files = []
    for i in range(3):
        files.append(tmp_path / f"{i}.safetensors")
        save_weights(files[-1], {"w": torch.full((2,), float(i)), "n": torch.tensor(i)})
    found = average_weights(files)
    assert found["w"].tolist() == [1.0, 1.0]
    assert found["w"].dtype == torch.float32
    assert int(found["n"]) == 2


def test_putting_weights_that_do_not_fit_names_both_sides():
    with pytest.raises(BadInput, match=r"missing \['count'\], unknown \['weird'\]"):
        copy_weights(Tied(), {"a.weight": torch.zeros(2, 2), "weird": torch.zeros(1)})
    with pytest.raises(BadInput, match=r"\(3, 2\)"):
        copy_weights(Tied(), {"a.weight": torch.zeros(3, 2), "count": torch.tensor(1)})


# -- streams and progress ----------------------------------------------------------------------------------------------


def test_streams_are_their_own_and_repeatable():
    seeds = {(seed, name): rng.derive_seed(seed, name) for seed in (0, 1) for name in ("init", "data", "dropout")}
    assert len(set(seeds.values())) == 6
    assert all(0 <= seed < 2**63 for seed in seeds.values())
    assert rng.derive_seed(1, "data") == seeds[1, "data"]


def test_metrics_forget_what_the_checkpoint_does_not_know_and_pass_over_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2}\n{"step": 5, "loss": 1}\n{"step": 6, "lo')
    metrics = MetricsFile(path, upto=3)
    metrics.add({"step": 4, "loss": math.nan})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 2},
        {"step": 4, "loss": None},
    ]


def test_progress_in_a_log_file_is_plain_lines_and_not_too_many(capfd):
    with Progress(100, every=1000) as progress:
        for step in range(1, 50):
            progress.update(step, {"loss": 1.5})
        progress.print_line("something")
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("step 1/100  loss 1.5  left ")
    assert lines[1] == "something"


def test_the_bar_never_cuts_its_count(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with Progress(123_456) as progress:
        progress.update(7, {"loss": 1.534, "lr": 1.234e-5, "tokens/s": 12_345})
        progress._show("working for 0:08")
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue()).strip().splitlines()[-1]
    assert "7/123456 in 0:00  loss 1.534" in last
    assert "working for 0:08" in last
    assert len(last) <= 80


def test_what_is_slow_is_said_again_and_again(capfd):
    with say_if_slow("timing ...", 0.01, every=0.02):
        time.sleep(0.1)
    with say_if_slow("quick ...", 1.0):
        pass
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert (first, second) == ("timing ...", "timing ... 0:00")


def test_clock():
    assert [format_seconds(s) for s in (5, 65, 3723)] == ["0:05", "1:05", "1:02:03"]
