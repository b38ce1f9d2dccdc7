"""Updates as CUDA graphs: the same losses and weights as without, exact resume, and a reason where none is captured."""

import json

import pytest
import torch

from regard.tasks.text.translation import Translation
from regard.training import train
from regard.training.recipe import override_recipe
from regard.training.update_graph import UpdateGraphs

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

COUNTER = {"updates": 0}
EXACT = ["train.device=cuda", "train.deterministic=true", "train.compile=false", "train.score_interval=0"]
EXACT += ["train.graph=on", "train.steps=48", "data.pad_to_multiple_of=8", "train.log_interval=1"]


@pytest.fixture(scope="module")
def exact(recipe):
    return override_recipe(recipe, EXACT)


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out):
    return [row["loss"] for row in rows(out) if "loss" in row]


def weights(out):
    from safetensors.torch import load_file

    return load_file(out / "model" / "model.safetensors")


def assert_same_weights(one, other):
    a, b = weights(one), weights(other)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "adafactor", "sgd"])
def test_with_and_without_graphs_a_run_is_the_same_to_the_bit(exact, tmp_path, optimizer):
    recipe = override_recipe(exact, [f"train.optimizer={optimizer}", "train.layer_decay=0.9"])
    found = train(override_recipe(recipe, ["train.graph=on"]), tmp_path / "graph")
    train(override_recipe(recipe, ["train.graph=off"]), tmp_path / "plain")
    assert found["captured_shapes"] >= 1
    assert found["replayed_updates"] >= 10
    assert losses(tmp_path / "graph") == losses(tmp_path / "plain")
    assert_same_weights(tmp_path / "graph", tmp_path / "plain")


def test_a_resumed_run_equals_one_without_a_stop_to_the_bit(exact, tmp_path):
    train(exact, tmp_path / "whole")
    train(override_recipe(exact, ["train.steps=29"]), tmp_path / "parts")
    train(exact, tmp_path / "parts", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")


def test_compiled_graphs_follow_the_eager_run(exact, tmp_path, unchecked):
    recipe = override_recipe(exact, ["train.deterministic=false", "train.precision=float32", "model.dropout=0"])
    found = train(override_recipe(recipe, ["train.compile=true", "train.graph=on"]), tmp_path / "graph")
    train(override_recipe(recipe, ["train.graph=off"]), tmp_path / "plain")
    assert found["compiled"]
    assert found["replayed_updates"] >= 10
    assert losses(tmp_path / "graph") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)


def test_an_update_with_a_gradient_that_is_not_finite_is_skipped_inside_a_graph(exact, tmp_path, monkeypatch):
    original = Translation.loss

    def loss(self, model, batch, step, rng):
        total, parts = original(self, model, batch, step, rng)
        return total * torch.where(step == 40, torch.nan, 1.0), parts

    monkeypatch.setattr(Translation, "loss", loss)
    found = train(override_recipe(exact, ["train.graph=on", "train.log_interval=4"]), tmp_path / "run")
    assert found["replayed_updates"] >= 10
    assert {row["step"]: row.get("skipped_updates") for row in rows(tmp_path / "run") if "loss" in row}[44] == 1
    assert all(torch.isfinite(x).all() for x in weights(tmp_path / "run").values())


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (lambda: float(torch.ones((), device="cuda")), "not captured"),
        (lambda: torch.rand(()), "random numbers are drawn on the host"),
        (lambda: COUNTER.update(updates=COUNTER["updates"] + 1), "counts on the host"),
    ],
    ids=["waits for the device", "draws on the host", "counts on the host"],
)
def test_what_cannot_be_captured_runs_without_a_graph_and_says_why(
    exact, tmp_path, monkeypatch, capsys, problem, reason
):
    original = Translation.loss

    def loss(self, model, batch, step, rng):
        problem()
        return original(self, model, batch, step, rng)

    train(override_recipe(exact, ["train.graph=off"]), tmp_path / "plain")
    capsys.readouterr()
    monkeypatch.setattr(Translation, "loss", loss)
    monkeypatch.setattr(Translation, "state_dict", lambda self: dict(COUNTER))
    found = train(exact, tmp_path / "run")
    assert reason in "".join(capsys.readouterr())
    assert found["replayed_updates"] == 0
    assert_same_weights(tmp_path / "plain", tmp_path / "run")


def test_out_of_memory_while_capturing_ends_the_graphs_and_not_the_run(exact, tmp_path, monkeypatch, capsys):
    def capture(self, batches, numbers):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(UpdateGraphs, "_capture", capture)
    found = train(exact, tmp_path / "run")
    assert found["steps"] == 48
    assert "out of GPU memory" in "".join(capsys.readouterr())


def test_shapes_that_never_repeat_are_not_captured(exact, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.training.update_graph._key", lambda x: object())
    assert train(exact, tmp_path / "run")["captured_shapes"] == 0
