"""Schedules, optimiser, averages, checkpoints, streams, progress: each by itself."""

import json
import math

import pytest
import torch
from torch import nn

from regard.core.errors import BadInput
from regard.training import streams
from regard.training.average import MovingAverage, mean, put, tensors
from regard.training.checkpoint import Checkpoints, read, read_weights, save_weights
from regard.training.optimiser import Optimiser
from regard.training.progress import Metrics, Progress, clock
from regard.training.schedule import factor

# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant"])
def test_warm_up_is_a_straight_line_to_the_peak(schedule):
    assert [factor(schedule, n, 10, 100) for n in (1, 5, 10)] == pytest.approx([0.1, 0.5, 1.0])


def test_inverse_square_root_halves_when_the_count_is_fourfold():
    assert factor("inverse_sqrt", 400, 100, 1000) == pytest.approx(0.5)
    assert factor("inverse_sqrt", 9, 0, 1000) == pytest.approx(1 / 3)  # no warm-up: from the first update on


def test_cosine_ends_at_its_floor_and_stays_there():
    assert factor("cosine", 55, 10, 100, 0.0) == pytest.approx(0.5)
    assert factor("cosine", 100, 10, 100, 0.1) == pytest.approx(0.1)
    assert factor("cosine", 500, 10, 100, 0.1) == pytest.approx(0.1)


# -- optimiser ---------------------------------------------------------------------------------------------------------


def optimiser(parameters, decay=0.1, clip=0.0):
    return Optimiser(parameters, (0.9, 0.98), 1e-9, decay, clip)


def test_updates_are_those_of_adamw_with_decay_for_matrices_only():
    matrix, vector = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(3))
    twins = [nn.Parameter(p.detach().clone()) for p in (matrix, vector)]
    plain = torch.optim.AdamW(
        [{"params": twins[:1], "weight_decay": 0.1}, {"params": twins[1:], "weight_decay": 0.0}],
        betas=(0.9, 0.98), eps=1e-9, fused=False, foreach=False,
    )  # fmt: skip
    ours = optimiser([matrix, vector, matrix])  # a tied parameter given twice is one
    for rate in (0.1, 0.03):
        for p, twin in zip((matrix, vector), twins, strict=True):
            p.grad = torch.randn_like(p)
            twin.grad = p.grad.clone()
        ours.step(rate)
        for group in plain.param_groups:
            group["lr"] = rate
        plain.step()
    for p, twin in zip((matrix, vector), twins, strict=True):
        torch.testing.assert_close(p, twin)
        assert p.grad is None


def test_a_gradient_is_clipped_to_its_norm_and_the_true_norm_is_told():
    p = nn.Parameter(torch.zeros(2))
    ours = optimiser([p], clip=1.0)
    p.grad = torch.tensor([3.0, 4.0])
    seen = []
    ours.adam.register_step_pre_hook(lambda adam, *_: seen.append(p.grad.norm().item()))
    norm, lost = ours.step(0.1)
    assert float(norm) == pytest.approx(5)
    assert float(lost) == 0
    assert seen[0] == pytest.approx(1, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_whose_gradient_is_not_finite_is_left_out(bad):
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    ours, twin = optimiser([p], clip=1.0), optimiser([q], clip=1.0)
    for optimiser_, x in ((ours, p), (twin, q)):
        x.grad = torch.tensor([1.0, 2.0])
        optimiser_.step(0.1)
    p.grad = torch.tensor([1.0, bad])
    assert float(ours.step(0.1)[1]) == 1
    assert torch.equal(p, q)
    for optimiser_, x in ((ours, p), (twin, q)):
        x.grad = torch.tensor([2.0, 1.0])
        optimiser_.step(0.1)
    assert torch.equal(p, q)


# -- averages ----------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


def test_tied_weights_have_one_name_and_scratch_has_none():
    assert tensors(Tied()).keys() == {"a.weight", "count"}


def test_moving_average_is_its_formula_and_forgets_the_start_early():
    model = Tied()
    ema = MovingAverage(model, 0.9)
    want = model.a.weight.detach().clone()
    for step in range(1, 60):
        with torch.no_grad():
            model.a.weight.add_(torch.randn(2, 2))
        ema.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        want = decay * want + (1 - decay) * model.a.weight.detach()
    torch.testing.assert_close(ema.kept["a.weight"], want)


def test_mean_of_files_is_the_mean_of_their_floats(tmp_path):
    files = []
    for i in range(3):
        files.append(tmp_path / f"{i}.safetensors")
        save_weights(files[-1], {"w": torch.full((2,), float(i)), "n": torch.tensor(i)})
    found = mean(files)
    assert found["w"].tolist() == [1.0, 1.0]
    assert found["w"].dtype == torch.float32
    assert int(found["n"]) == 2


def test_putting_weights_that_do_not_fit_names_both_sides():
    with pytest.raises(BadInput, match=r"missing \['count'\], unknown \['weird'\]"):
        put(Tied(), {"a.weight": torch.zeros(2, 2), "weird": torch.zeros(1)})
    with pytest.raises(BadInput, match=r"\(3, 2\)"):
        put(Tied(), {"a.weight": torch.zeros(3, 2), "count": torch.tensor(1)})


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_newest_keep_their_state_those_to_average_their_weights_others_go(tmp_path):
    kept = Checkpoints(tmp_path, keep=2, average=3)
    for step in range(1, 6):
        kept.save(step, {"w": torch.tensor([float(step)])}, {"step": step})
    names = [p.name for p in sorted(tmp_path.iterdir())]
    assert names == ["step-00000003", "step-00000004", "step-00000005"]
    assert [(tmp_path / n / "state.pt").is_file() for n in names] == [False, True, True]
    weights, state = read(kept.latest())
    assert state["step"] == 5
    assert weights["w"].tolist() == [5.0]


def test_a_checkpoint_of_an_interruption_is_gone_on_from_but_not_averaged(tmp_path):
    kept = Checkpoints(tmp_path, keep=1, average=2)
    kept.save(2, {}, {"step": 2})
    kept.save(4, {}, {"step": 4})
    kept.save(5, {}, {"step": 5}, regular=False)
    assert kept.latest().name == "stop-00000005"
    assert [file.parent.name for file in kept.last(2)] == ["step-00000002", "step-00000004"]
    kept.save(6, {}, {"step": 6})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000006"]


def test_nothing_half_written_is_left_when_saving_fails(tmp_path):
    kept = Checkpoints(tmp_path)
    with pytest.raises(BadInput, match="nothing of the run is saved yet"):
        kept.save(1, {}, {"cannot be pickled": OSErrorWhenPickled()})
    assert list(tmp_path.iterdir()) == []


class OSErrorWhenPickled:
    def __reduce__(self):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("file", ["state.pt", "model.safetensors"])
def test_a_truncated_checkpoint_is_one_line_that_names_the_file(tmp_path, file):
    path = Checkpoints(tmp_path).save(1, {"w": torch.zeros(100)}, {"x": torch.zeros(100)})
    content = (path / file).read_bytes()
    (path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match=file) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_checkpoint_runs_no_code(tmp_path):
    import os

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    path = tmp_path / "step-00000001"
    path.mkdir()
    torch.save({"x": Evil()}, path / "state.pt")
    with pytest.raises(BadInput, match=r"state\.pt"):
        read(path)
    assert not (tmp_path / "owned").exists()
    with pytest.raises(BadInput, match="cannot read"):
        read_weights(tmp_path / "none.safetensors")


# -- streams and progress ----------------------------------------------------------------------------------------------


def test_streams_are_their_own_and_repeatable():
    seeds = {(seed, name): streams.derived(seed, name) for seed in (0, 1) for name in ("init", "data", "dropout")}
    assert len(set(seeds.values())) == 6
    assert all(0 <= seed < 2**63 for seed in seeds.values())
    assert streams.derived(1, "data") == seeds[1, "data"]


def test_metrics_forget_what_the_checkpoint_does_not_know_and_pass_over_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2}\n{"step": 5, "loss": 1}\n{"step": 6, "lo')
    metrics = Metrics(path, upto=3)
    metrics.add({"step": 4, "loss": math.nan})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 2},
        {"step": 4, "loss": None},
    ]


def test_progress_in_a_log_file_is_plain_lines_and_not_too_many(capfd):
    with Progress(100, every=1000) as progress:
        for step in range(1, 50):
            progress.at(step, {"loss": 1.5})
        progress.say("something")
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("step 1/100  loss 1.5  left ")
    assert lines[1] == "something"


def test_clock():
    assert [clock(s) for s in (5, 65, 3723)] == ["0:05", "1:05", "1:02:03"]
