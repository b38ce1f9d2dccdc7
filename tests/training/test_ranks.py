"""Several processes train as one does: the same losses, checkpoints from any number of them to any other."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.core.errors import RegardError
from regard.training import train
from regard.training.checkpoint.checkpoints import read_weights
from regard.weights.folder import load_model
from tests.deadline import run_group
from tests.training.run_ranks import together

HERE = Path(__file__).resolve()

RECIPE = """
'''A toy, for ranks.'''
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training.recipe import Recipe, Train

def recipe():
    return Recipe(
        Config(vocab=300, width=16, heads=4, ffn=32, encoder_layers=2, decoder_layers=1, dropout=0.0, norm="pre"),
        translation.Config(beam_size=2),
        ParallelCorpus({folder!r}, vocab_size=300, batch_tokens=96, pad_to_multiple_of=1),
        Train(steps=12, gradient_accumulation_steps=2, learning_rate=3e-3, warmup_steps=5, clip_grad_norm=1.0,
              weight_decay=0.01, ema_decay=0.9, average_checkpoints=3, eval_interval=6, save_interval=4,
              log_interval=2, device="cpu", score_interval=0),
    )
"""


def launch(ranks, jobs, folder):
    """Run several trainings in `ranks` processes."""
    return together(ranks, "tests.training.rank_jobs", written(jobs, folder))


def torchrun(ranks, jobs, folder, *options, timeout=300):
    """The same, started with torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [*options, "-m", "tests.training.rank_jobs", str(written(jobs, folder))]
    paths = [str(HERE.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = run_group(command, timeout, env=env, cwd=HERE.parents[2])
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


def written(jobs, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    return folder / "jobs.json"


def losses(out):
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    train_rows = [(row["step"], row["loss"], row["grad_norm"], row["tokens"]) for row in rows if "grad_norm" in row]
    valid_rows = [(row["step"], row["val_loss"]) for row in rows if "val_loss" in row]
    return torch.tensor(train_rows, dtype=torch.float64), torch.tensor(valid_rows, dtype=torch.float64)


def close(a, b):
    """The same curve, up to 1e-5 relative."""
    for x, y in zip(losses(a), losses(b), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=0)


@pytest.fixture(scope="module")
def recipe_file(toy, tmp_path_factory):
    file = tmp_path_factory.mktemp("recipes") / "toy.py"
    file.write_text(RECIPE.format(folder=str(toy)))
    return str(file)


@pytest.fixture(scope="module")
def one(recipe_file, tmp_path_factory):
    """The run of a single process."""
    out = tmp_path_factory.mktemp("one") / "run"
    train(recipe_file, out)
    return out


WAYS = {
    "ddp2": ["train.data_parallel=ddp"],
    "fsdp2": ["train.data_parallel=fsdp", "train.gradient_checkpointing=true"],
    "tensor2": ["train.tensor_parallel=2"],
}
OTHERS = {
    "half2": ["train.data_parallel=fsdp", "train.steps=6"],
    "scored2": [
        "train.data_parallel=fsdp",
        "train.steps=2",
        "train.eval_interval=2",
        "train.score_interval=1",
        "train.final_weights=last",
    ],
}
WAYS4 = {"ddp4": ["train.data_parallel=ddp"], "both4": ["train.data_parallel=fsdp", "train.tensor_parallel=2"]}


def jobs_of(ways, recipe_file, folder):
    return [{"recipe": recipe_file, "out": str(folder / way), "settings": how} for way, how in ways.items()]


@pytest.fixture(scope="module")
def spread(recipe_file, one, tmp_path_factory):
    """Every kind of parallelism that two processes can do."""
    folder = tmp_path_factory.mktemp("spread")
    launch(2, jobs_of(WAYS | OTHERS, recipe_file, folder), folder / "jobs2")
    return folder


@pytest.fixture(scope="module")
def spread4(spread, recipe_file):
    """What needs four, and a run of two that is resumed by four."""
    shutil.copytree(spread / "half2", spread / "half4")
    resumed = {"recipe": None, "out": str(spread / "half4"), "settings": ["train.steps=9"], "resume": True}
    launch(4, [*jobs_of(WAYS4, recipe_file, spread), resumed], spread / "jobs4")
    return spread


@pytest.mark.parametrize("way", WAYS)
def test_the_curve_does_not_depend_on_parallelism(spread, one, way):
    close(one, spread / way)


@pytest.mark.parametrize("way", WAYS)
def test_the_saved_model_does_not_depend_on_parallelism(spread, one, way):
    assert_same_outputs(one, spread / way)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS4)
def test_neither_depends_on_four_processes(spread4, one, way):
    close(one, spread4 / way)
    assert_same_outputs(one, spread4 / way)


def assert_same_outputs(one, other):
    """Compare outputs: a key's bias has only rounding as gradient, which AdamW scales up."""
    source, target = torch.arange(4, 28).view(4, 6), torch.arange(30, 50).view(4, 5)
    a, b = (load_model(out / "model").model.eval()(source, target) for out in (one, other))
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    assert a.std() > 0.1


def test_a_model_in_shards_writes_and_is_scored(spread):
    assert "bleu" in json.loads((spread / "scored2" / "result.json").read_text())["validation"]["last"]


def test_a_run_of_two_processes_resumes_with_one(spread, one):
    train(None, spread / "half2", resume=True, settings=["train.steps=12", "train.data_parallel=auto"])
    close(one, spread / "half2")


@pytest.mark.long
def test_a_run_of_two_processes_resumes_with_four_and_then_with_one(spread4, one):
    train(None, spread4 / "half4", resume=True, settings=["train.steps=12", "train.data_parallel=auto"])
    close(one, spread4 / "half4")


def test_a_sharded_checkpoint_is_read_whole_without_any_process_group(spread, one):
    a = read_weights(one / "checkpoints" / "step-00000012")
    b = read_weights(spread / "fsdp2" / "checkpoints" / "step-00000012")
    assert a.keys() == b.keys()
    for name in a:
        if not name.endswith("kv.bias"):  # of which the keys' part has no gradient but rounding
            torch.testing.assert_close(a[name], b[name], rtol=2e-3, atol=2e-4)


LARGE = [
    "model.width=512",
    "model.ffn=2048",
    "model.encoder_layers=36",
    "model.decoder_layers=36",
    "train.optimizer=adafactor",
    "train.ema_decay=0.0",
    "train.gradient_accumulation_steps=1",
    "train.eval_interval=100",
    "train.save_interval=2",
    "train.learning_rate=1e-4",
]


@pytest.mark.long
def test_four_processes_train_a_model_that_none_of_them_may_hold(recipe_file, tmp_path, monkeypatch):
    """Of 1,007 MiB, the whole model, in 900: its weights, gradients and a checkpoint that one process can read."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))  # so that what is freed can be taken again
    big = {"recipe": recipe_file, "out": str(tmp_path / "big"), "settings": LARGE, "end": 2}
    launch(4, [big | {"settings": [*LARGE, "train.data_parallel=fsdp"], "mebibytes": 900}], tmp_path / "jobs4")
    launch(1, [big | {"out": str(tmp_path / "whole")}], tmp_path / "jobs1")
    (sharded,), (whole,) = (losses(tmp_path / name)[0] for name in ("big", "whole"))
    torch.testing.assert_close(sharded, whole, rtol=1e-4, atol=0)
    weights = [read_weights(next((tmp_path / name / "checkpoints").glob("step-*"))) for name in ("big", "whole")]
    assert sum(x.numel() * x.element_size() for x in weights[0].values()) > 900 << 20
    for name, x in weights[1].items():
        torch.testing.assert_close(weights[0][name], x, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.long
def test_a_process_that_is_killed_is_started_again_and_nothing_is_lost(spread, recipe_file, tmp_path):
    out, marker = tmp_path / "killed", tmp_path / "marker"
    kill = {"rank": 1, "step": 7, "marker": str(marker)}
    job = {
        "recipe": recipe_file,
        "out": str(out),
        "settings": ["train.data_parallel=ddp"],
        "resume": True,
        "kill": kill,
    }
    message = torchrun(2, [job], tmp_path / "jobs", "--max-restarts", "1")
    assert marker.exists()
    assert "resumed from update 4" in message
    rows, undisturbed = (_without_clocks(folder / "metrics.jsonl") for folder in (out, spread / "ddp2"))
    assert rows == undisturbed
    a, b = (load_file(folder / "checkpoints" / "final.safetensors") for folder in (out, spread / "ddp2"))
    assert all(torch.equal(a[name], b[name]) for name in a | b)


def _without_clocks(file):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in row.items() if "second" not in key} for row in rows]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.data_parallel=fsdp", "torchrun"),
        ("train.tensor_parallel=2", "torchrun"),
        ("train.data_parallel=dpp", "ddp"),
        ("train.optimizer=adm", "adam"),
    ],
)
def test_what_one_process_cannot_do_is_said_before_anything_is_written(recipe_file, tmp_path, setting, message):
    with pytest.raises(RegardError, match=message):
        train(recipe_file, tmp_path / "run", settings=[setting])
    assert not (tmp_path / "run" / "recipe.json").exists()
