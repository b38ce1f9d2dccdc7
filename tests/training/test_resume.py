"""Exact resume: train 2n updates == train n, stop, resume for n, to the bit and with any feature on.

Compared are the files of the last checkpoint (weights, moments, moving average, position in the data, random streams),
the best and the final weights, and every logged number.
"""

import importlib
import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch

from regard.attention.mechanisms.routing import RoutingAttention
from regard.core.errors import BadInput
from regard.training import train
from regard.training.checkpoint.checkpoints import read_weights
from regard.training.checkpoint.manifest import MANIFEST, find_damage, read_manifest, seal_manifest
from regard.training.loop import TrainingRun
from regard.training.recipe import override_recipe
from tests.long_params import rest_is_long

CLOCKS = ("seconds", "eval_seconds", "elapsed", "tokens_per_second")
BASE = [
    "train.steps=10",
    "train.eval_interval=3",
    "train.save_interval=4",
    "train.log_interval=4",
    "train.score_interval=0",
]


def rows(out):
    """Everything that was logged, except times."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKS} for line in lines]


def everything(out, name):
    """The content of a checkpoint, as plain values and tensors by name."""
    path = out / "checkpoints" / name
    assert find_damage(path) is None
    found = {}
    for file in sorted(path.iterdir()):
        if file.suffix == ".safetensors" or file.is_dir():  # a group of tensors, whole or in slices
            found |= {f"{file.stem}/{key}": x for key, x in read_weights(path, file.stem).items()}
        elif file.suffix == ".pt":
            found |= flat(torch.load(file, weights_only=True), file.stem)
    return {key: x for key, x in found.items() if key.rsplit("/", 1)[-1] not in CLOCKS}


def flat(value, name):
    if isinstance(value, dict):
        return {key: x for k, v in value.items() for key, x in flat(v, f"{name}/{k}").items()}
    return {name: value}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return a == b


def assert_equal_runs(a, b, name):
    one, two = everything(a, name), everything(b, name)
    assert one.keys() == two.keys()
    assert [key for key in one if not same(one[key], two[key])] == []
    for file in ("best.safetensors", "final.safetensors"):
        x, y = read_weights(a / "checkpoints" / file), read_weights(b / "checkpoints" / file)
        assert [key for key in x if not same(x[key], y[key])] == [], file
    assert rows(a) == rows(b)


def interrupted(patch, after):
    """Interrupt the next run, as by Ctrl-C, in update `after`."""
    update = TrainingRun._update

    def requested(self, batches):
        if self.step == after - 1:
            os.kill(os.getpid(), signal.SIGINT)
        update(self, batches)

    patch.setattr(TrainingRun, "_update", requested)


def in_pieces(recipe, out, cuts, monkeypatch):
    """Stop a run after some updates and resume it each time; return its positions in the data there."""
    places = []
    for cut in cuts:
        with monkeypatch.context() as patch:
            interrupted(patch, cut)
            assert train(recipe, out, resume=True)["stop_reason"] == "interrupted"
        (path,) = (out / "checkpoints").glob(f"st?p-{cut:08d}")
        places.append(everything(out, path.name)["state/position/position"])
    assert train(recipe, out, resume=True)["stop_reason"] == "steps"
    return places


def end(out):
    """The name of the last checkpoint."""
    (path,) = (out / "checkpoints").glob("st?p-00000010")
    return path.name


WAYS = {
    "dropout, two batches an update, a moving average, clipping": [],
    "one batch an update": ["train.gradient_accumulation_steps=1"],
    "three batches an update": ["train.gradient_accumulation_steps=3"],
    "no moving average": ["train.ema_decay=0"],
    "several makers of batches": ["train.num_workers=3"],
    "recomputed blocks": ["train.gradient_checkpointing=true"],
    "muon": ["train.optimizer=muon"],
    "adafactor": ["train.optimizer=adafactor"],
    "sgd": ["train.optimizer=sgd(momentum=0.9)"],
    "layer-wise decay": ["train.layer_decay=0.8"],
    "a schedule that ends with the run": ["train.schedule=wsd"],
    "saved and measured each epoch": ["train.save_interval=0", "train.eval_interval=0"],
}


LONG = (
    "three batches an update",
    "no moving average",
    "one batch an update",
    "muon",
    "adafactor",
    "sgd",
    "layer-wise decay",
    "several makers of batches",
)


@pytest.mark.parametrize("way", rest_is_long(WAYS, *WAYS.keys() - LONG))
def test_train_n_stop_and_resume_equals_train_2n_to_the_bit(recipe, tmp_path, monkeypatch, way):
    whole = override_recipe(recipe, [*BASE, *WAYS[way]])
    train(whole, tmp_path / "straight")
    (place,) = in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert place > 0  # in the middle of an epoch, between two rows of metrics, two looks, two regular checkpoints
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))


@pytest.mark.parametrize(
    "name", ["rnnsearch", *(pytest.param(name, marks=pytest.mark.long) for name in ("seq2seq", "luong"))]
)
def test_scheduled_sampling_is_resumed_to_the_bit(recipe, tmp_path, monkeypatch, name):
    module = importlib.import_module(f"regard.models.{name}")
    model = module.Config(vocab=300, **module.SIZES["tiny"] | {"width": 16, "hidden": 16})
    whole = override_recipe(
        replace(recipe, model=model), [*BASE, "task.teacher_forcing=linear(steps=8, min_probability=0.25)"]
    )
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))
    train(override_recipe(whole, ["task.teacher_forcing=always"]), tmp_path / "forced")
    assert rows(tmp_path / "forced") != rows(tmp_path / "straight")


@pytest.mark.long
def test_centroids_move_after_updates_and_are_resumed_to_the_bit(recipe, tmp_path, monkeypatch):
    whole = override_recipe(recipe, [*BASE, "model.attention=routing(clusters=2, window=4)"])
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))
    weights = read_weights(tmp_path / "straight" / "checkpoints" / "final.safetensors")
    moved = [x for key, x in weights.items() if key.endswith("centroids")]
    heads, clusters, head_dim = moved[0].shape
    assert not any(torch.equal(x, RoutingAttention(heads, head_dim, clusters).centroids) for x in moved)


@pytest.fixture(scope="module")
def straight(recipe, tmp_path_factory):
    """Ten updates without interruption."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    train(override_recipe(recipe, BASE), out)
    return out


@pytest.mark.long
def test_a_run_stopped_after_every_single_update_ends_at_the_same_bits(recipe, tmp_path, monkeypatch, straight):
    in_pieces(override_recipe(recipe, BASE), tmp_path / "stopped", range(1, 10), monkeypatch)
    assert_equal_runs(straight, tmp_path / "stopped", end(straight))


@pytest.mark.long
def test_mixed_precision_is_resumed_to_the_bit(recipe, tmp_path, monkeypatch, straight):
    """Autocast to bfloat16, as on a GPU; users' runs on a CPU are in float32."""
    monkeypatch.setattr("regard.training.loop.select_precision", lambda *_: "bfloat16")
    whole = override_recipe(recipe, BASE)
    assert train(whole, tmp_path / "straight")["precision"] == "bfloat16"
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(straight))
    assert rows(tmp_path / "straight") != rows(straight)  # it did compute in it


@pytest.mark.gpu
def test_a_run_on_a_gpu_is_resumed_to_the_bit_in_deterministic_mode(recipe, tmp_path, monkeypatch):
    whole = override_recipe(recipe, [*BASE, "train.device=cuda", "train.deterministic=true", "train.compile=false"])
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))


def test_going_on_with_a_run_that_is_over_changes_nothing(recipe, tmp_path, straight):
    shutil.copytree(straight, out := tmp_path / "over")
    train(override_recipe(recipe, BASE), out, resume=True)
    assert_equal_runs(straight, out, end(straight))


# -- damage ------------------------------------------------------------------------------------------------------------


def damage(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.fixture
def stopped(recipe, tmp_path, monkeypatch):
    """A run that was stopped after its seventh update: step-00000004 and stop-00000007 are there."""
    with monkeypatch.context() as patch:
        interrupted(patch, 7)
        train(override_recipe(recipe, BASE), tmp_path / "run")
    return tmp_path / "run"


def test_a_run_whose_last_checkpoint_is_damaged_resumes_from_the_one_before_says_so_and_ends_at_the_same_bits(
    recipe, stopped, straight, capfd
):
    damage(stopped / "checkpoints" / "stop-00000007" / "optimizer.safetensors")
    train(override_recipe(recipe, BASE), stopped, resume=True)
    message = capfd.readouterr().err
    assert "stop-00000007 is skipped: optimizer.safetensors is damaged" in message
    assert "resumed from update 4" in message
    assert_equal_runs(straight, stopped, end(straight))
    assert not (stopped / "checkpoints" / "stop-00000007").exists()


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_with_only_damaged_checkpoints_is_left_untouched(recipe, stopped, resume):
    for path in (stopped / "checkpoints").glob("st?p-*"):
        damage(path / "model.safetensors")
    before = {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()}
    with pytest.raises(BadInput, match="can be resumed from") as error:
        train(override_recipe(recipe, BASE), stopped, resume=resume)
    assert "\n" not in str(error.value)
    assert {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()} == before


def test_a_checkpoint_of_another_model_is_one_line_and_nothing_is_lost(recipe, stopped, tmp_path):
    other = override_recipe(recipe, [*BASE, "train.steps=7", "model.width=24"])
    train(other, tmp_path / "other")
    shutil.rmtree(stopped / "checkpoints" / "stop-00000007")
    shutil.copytree(tmp_path / "other" / "checkpoints" / "stop-00000007", stopped / "checkpoints" / "stop-00000007")
    with pytest.raises(
        BadInput, match=r"recipe.json was edited after stop-00000007: model.width was 24, is 16"
    ) as error:
        train(override_recipe(recipe, BASE), stopped, resume=True)
    assert "\n" not in str(error.value)
    assert (stopped / "checkpoints" / "step-00000004").is_dir()


@pytest.mark.parametrize(
    ("group", "name", "value"), [("model", "dropout", 0.1), ("task", "beam_size", 3), ("data", "batch_tokens", 64)]
)
def test_an_edited_recipe_is_named_and_nothing_is_trained(stopped, group, name, value):
    file = stopped / "recipe.json"
    values = json.loads(file.read_text())
    was = values[group][name]
    values[group][name] = value
    file.write_text(json.dumps(values))
    before = {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()}
    message = rf"recipe.json was edited after stop-00000007: {group}.{name} was {was!r}, is {value!r}; undo the change"
    with pytest.raises(BadInput, match=message):
        train(None, stopped, resume=True)
    assert {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()} == before


def test_an_edited_training_setting_is_named_and_used_as_one_from_the_command_line(stopped, capfd):
    file = stopped / "recipe.json"
    values = json.loads(file.read_text())
    values["train"]["steps"] = 9
    file.write_text(json.dumps(values))
    assert train(None, stopped, resume=True)["stop_reason"] == "steps"
    assert "recipe.json was changed after stop-00000007: train.steps was 10, is 9" in capfd.readouterr().err
    assert (stopped / "checkpoints" / "stop-00000009").is_dir()


def test_a_checkpoint_of_an_older_version_has_no_recipe_and_is_resumed(recipe, stopped):
    for folder in (stopped / "checkpoints").glob("st?p-*"):
        manifest = read_manifest(folder)
        del manifest["recipe"]
        (folder / MANIFEST).write_bytes(seal_manifest(manifest))
    assert train(override_recipe(recipe, BASE), stopped, resume=True)["stop_reason"] == "steps"


def test_checkpoints_that_cannot_be_written_are_one_line(recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(BadInput, match=r"cannot (write|save)") as error:
        train(override_recipe(recipe, BASE), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert (tmp_path / "run" / "checkpoints").read_text() == "a file where the folder should be"


def test_a_folder_that_cannot_be_made_is_one_line(recipe, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BadInput, match="cannot create the folder"):
        train(override_recipe(recipe, BASE), tmp_path / "file" / "run")


def test_a_run_of_another_recipe_is_not_resumed(stopped):
    with pytest.raises(BadInput, match="holds a run of toy, not of luong_multi30k") as error:
        train("luong_multi30k", stopped, resume=True, settings=["train.steps=8"])
    assert "\n" not in str(error.value)
    assert train("elsewhere/toy.py", stopped, resume=True, settings=["train.steps=8"])["steps"] == 8
    assert train("toy", stopped, resume=True, settings=["train.steps=9"])["steps"] == 9
