"""GPU-only tests: autocast, the compiler, pinned batches, CUDA graphs of decoding steps, and resuming."""

import json
import subprocess
import sys

import pytest
import torch

from regard.training import evaluate, train
from regard.training.recipe import override_recipe

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


def losses(out):
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def test_a_run_in_bfloat16_compiled_learns_and_resumes(recipe, tmp_path, unchecked):
    on_gpu = override_recipe(
        recipe, ["train.device=cuda", "train.steps=60", "train.compile=true", "data.pad_to_multiple_of=8"]
    )
    result = train(override_recipe(on_gpu, ["train.steps=30"]), tmp_path / "run")
    assert result["precision"] == "bfloat16"
    assert result["compiled"]
    result = train(on_gpu, tmp_path / "run", resume=True)
    assert result["steps"] == 60
    found = losses(tmp_path / "run")
    assert found[-1] < found[0]
    measured = evaluate(tmp_path / "run", ["val"])["results"]["val"]
    assert measured["loss"] == pytest.approx(result["validation"][result["final_weights"]]["loss"], rel=1e-3)


def test_compiled_bfloat16_follows_eager_float32(recipe, tmp_path, unchecked):
    still = override_recipe(
        recipe,
        ["train.device=cuda", "model.dropout=0", "train.score_interval=0", "train.log_interval=1", "train.steps=12"],
    )
    train(override_recipe(still, ["train.compile=false", "train.precision=float32"]), tmp_path / "plain")
    train(override_recipe(still, ["train.compile=true"]), tmp_path / "fast")
    assert losses(tmp_path / "fast") == pytest.approx(losses(tmp_path / "plain"), rel=2e-2)


def test_a_run_started_on_a_gpu_resumes_without_one(recipe, tmp_path, unchecked):
    short = override_recipe(recipe, ["train.steps=6", "train.score_interval=0", "train.compile=false"])
    train(override_recipe(short, ["train.device=cuda"]), tmp_path / "run")
    assert train(override_recipe(short, ["train.steps=9"]), tmp_path / "run", resume=True)["steps"] == 9


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_shards_in_bfloat16_follow_the_whole_model(recipe, tmp_path, compiled):
    """FSDP2 with one process: gathered weights are bfloat16, shards and sums stay float32."""
    from regard.training.recipe import to_json

    still = ["train.device=cuda", "model.dropout=0", "train.score_interval=0", "train.log_interval=1", "train.steps=12"]
    train(override_recipe(recipe, [*still, "train.compile=false", "train.precision=float32"]), tmp_path / "plain")
    (tmp_path / "recipe.json").write_text(json.dumps(to_json(recipe)))
    code = f"""
import json, sys
from regard.training import train
from regard.training.recipe import from_json, override_recipe
recipe = from_json(json.load(open(sys.argv[1])))
train(override_recipe(recipe, {[*still, "train.data_parallel=fsdp", f"train.compile={compiled}"]!r}), sys.argv[2])
"""
    (tmp_path / "run.py").write_text(code)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    command += [str(tmp_path / "run.py"), str(tmp_path / "recipe.json"), str(tmp_path / "sliced")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert losses(tmp_path / "sliced") == pytest.approx(losses(tmp_path / "plain"), rel=2e-2)
    result = json.loads((tmp_path / "sliced" / "result.json").read_text())
    assert (result["data_parallel"], result["precision"]) == ("fsdp", "bfloat16")
