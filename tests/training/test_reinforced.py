"""Exact resume of REINFORCE: samples, baseline and all."""

import math
from dataclasses import replace

import pytest
import torch

from regard.core.errors import RegardError
from regard.models import online_alignment
from regard.models.rnnsearch import Config
from regard.tasks import reinforce
from regard.tasks.reinforce import Reinforce, ReinforceMixin
from regard.training import train
from regard.training.recipe import from_json, override_recipe, to_json
from tests.training.test_resume import BASE, assert_equal_runs, end, everything, in_pieces, rows


@pytest.fixture(scope="module")
def hard(recipe):
    """The toy recipe with hard attention."""
    task = reinforce.Config(beam_size=2, reinforce=Reinforce(entropy=0.1, final_entropy=0.01, entropy_steps=8))
    model = Config(vocab=300, width=16, hidden=16, readout=None, dropout=0.1, aligner="hard(soft_fraction=0.3)")
    return replace(recipe, model=model, task=task)


def test_samplers_without_a_reward_are_refused(hard, recipe, tmp_path):
    with pytest.raises(RegardError, match="HardAligner samples, but the task does not train it: use a REINFORCE task"):
        train(replace(hard, task=recipe.task), tmp_path / "run")


WAYS = {
    "learned baseline": ["task.reinforce.baseline=learned"],
    "moving baseline": [],
    "whole reward, three batches an update": ["task.reinforce.credit=whole", "train.gradient_accumulation_steps=3"],
    "others": ["task.reinforce.baseline=leave_one_out", "task.reinforce.num_samples=2"],
}
LONG = ("moving baseline", "whole reward, three batches an update", "others")  # the same roads through the checkpoint


@pytest.mark.parametrize("way", [pytest.param(w, marks=pytest.mark.long) if w in LONG else w for w in WAYS])
def test_hard_attention_is_resumed_to_the_bit(hard, tmp_path, monkeypatch, way):
    whole = override_recipe(hard, [*BASE, *WAYS[way]])
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))


def test_the_online_model_is_resumed_to_the_bit(hard, tmp_path, monkeypatch):
    whole = replace(
        override_recipe(hard, BASE),
        model=online_alignment.Config(vocab=300, width=16, hidden=16, layers=1, dropout=0.1),
    )
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))


def test_the_baseline_is_in_the_checkpoint_and_a_run_without_it_goes_elsewhere(hard, tmp_path, monkeypatch):
    whole = override_recipe(hard, BASE)
    train(whole, tmp_path / "straight")
    found = everything(tmp_path / "straight", end(tmp_path / "straight"))
    total, ones = found["state/task/baseline/sums"].tolist()
    assert ones == pytest.approx(1 - 0.9**10)
    assert -2 * math.log(300) < total / ones < -1  # about the log-likelihood a token
    monkeypatch.setattr(ReinforceMixin, "load_state_dict", lambda self, state: None)
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    other = everything(tmp_path / "stopped", end(tmp_path / "straight"))
    assert not torch.equal(
        other["model/decoder.aligner.base.score.weight"], found["model/decoder.aligner.base.score.weight"]
    )


def test_a_run_is_logged_stored_and_measured_like_any_other(hard, tmp_path):
    assert from_json(to_json(hard)) == hard
    result = train(
        override_recipe(hard, ["train.steps=4", "train.log_interval=2", "train.eval_interval=4"]), tmp_path / "run"
    )
    assert result["steps"] == 4
    logged = [row for row in rows(tmp_path / "run") if "entropy" in row]
    assert 0 < logged[-1]["entropy"] < math.log(10)  # nats per token, over at most ten places
    from regard.weights.folder import load_model

    assert load_model(tmp_path / "run" / "model").model.config.aligner == "hard(soft_fraction=0.3)"
