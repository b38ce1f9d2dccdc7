"""Checks of shipped and saved models, runs and checkpoints; damaged files; runs that do not resume exactly."""

import json
import shutil

import pytest
import torch

from regard.cli import main
from regard.core.errors import BadInput, UnknownName
from regard.data.text.parallel_corpus import ParallelCorpus
from regard.doctor import examine
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training import rng, train
from regard.training.recipe import Recipe, Train
from tests.stories.command import tiny_corpus, tiny_translator


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return tiny_translator(tmp_path_factory.mktemp("saved") / "tiny")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run of a few updates, with dropout, a moving average and an epoch boundary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
        folder = tmp_path_factory.mktemp("trained")
        corpus = tiny_corpus(folder / "pairs")
        model = Config(vocab=300, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1, dropout=0.2)
        recipe = Recipe(
            model,
            translation.Config(beam_size=2),
            ParallelCorpus(str(corpus), vocab_size=300, batch_tokens=256),
            Train(
                steps=4,
                warmup_steps=2,
                save_interval=2,
                eval_interval=4,
                score_interval=0,
                log_interval=2,
                ema_decay=0.9,
                device="cpu",
            ),
        )
        train(recipe, folder / "run")
    return folder / "run"


@pytest.fixture(autouse=True)
def _no_curve(monkeypatch):
    """Drawing takes longer than these runs."""
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)


def states(report):
    return {finding.check: finding.state for finding in report}


def test_saved_model_passes(saved):
    report = examine(saved)
    assert report.ok, str(report)
    assert "Transformer" in report.subject
    assert "resume" not in states(report)


@pytest.mark.long
def test_shipped_model_passes():
    report = examine("en-fr")
    assert report.ok, str(report)
    assert set(states(report).values()) == {"ok"}


def test_run_passes_and_resumes_exactly(trained):
    before = sorted((path, path.stat().st_mtime_ns) for path in trained.rglob("*"))
    report = examine(trained)
    assert report.ok, str(report)
    assert states(report)["checkpoints"] == "ok"
    assert report["resume"].message == "4 updates from step-00000004 = 2, stop, 2 more, bitwise equal (on cpu, float32)"
    assert sorted((path, path.stat().st_mtime_ns) for path in trained.rglob("*")) == before  # no file was changed


def test_single_checkpoint_passes(trained):
    report = examine(trained / "checkpoints" / "step-00000002", steps=0)
    assert report.ok, str(report)
    assert "step-00000002" in report["files"].message
    assert "step-00000004" not in report["checkpoints"].message
    assert examine(trained / "checkpoints", steps=0).ok


def test_unrestored_rng_fails_resume(trained, monkeypatch):
    monkeypatch.setattr(rng, "set_rng_state", lambda *args, **kwargs: None)
    report = examine(trained)
    assert [finding.check for finding in report.failed] == ["resume"]
    assert "some state is missing from the checkpoint" in report["resume"].message
    assert "model: " in report["resume"].message


def test_unrepeatable_training_is_reported_as_such(trained, monkeypatch):
    loss, dice = translation.Translation.loss, torch.Generator().manual_seed(0)

    def restless(self, model, batch, step=0, rng=None):
        total, parts = loss(self, model, batch, step, rng)
        return total * (1 + torch.rand((), generator=dice)), parts  # a generator that is not in the checkpoint

    monkeypatch.setattr(translation.Translation, "loss", restless)
    report = examine(trained)
    assert "training is not repeatable" in report["resume"].message


def test_run_without_its_data_skips_resume(trained, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    values = json.loads((copy / "recipe.json").read_text("utf-8"))
    values["data"]["corpus"] = str(tmp_path / "gone")
    (copy / "recipe.json").write_text(json.dumps(values), encoding="utf-8")
    report = examine(copy)
    assert report.ok, str(report)
    assert states(report)["resume"] == "skipped"
    assert "gone" in report["resume"].message


def test_damaged_checkpoint_is_named(trained, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    file = copy / "checkpoints" / "step-00000004" / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(bytes(content))
    report = examine(copy)
    assert [finding.check for finding in report.failed] == ["checkpoints"]
    assert "step-00000004: optimizer.safetensors is damaged" in report["checkpoints"].message
    assert "from step-00000002" in report["resume"].message  # the newest undamaged one


def test_damaged_weights_fail_files(saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:-100])
    report = examine(copy)
    assert states(report) == {"files": "failed"}
    assert "damaged, cut short or changed" in report["files"].message


def test_unknown_name_or_folder_is_refused(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'en-de'"):
        examine("en-dee")
    with pytest.raises(BadInput, match="neither a saved model"):
        examine(tmp_path)


def test_command_prints_a_line_per_check_and_sets_the_exit_status(saved, tmp_path, capsys):
    assert main(["doctor", str(saved)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["ok"] * (len(lines) - 1)
    assert lines[-1].endswith(f"{len(lines) - 1} ok")

    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    (copy / "model.safetensors").write_bytes(b"")
    assert main(["doctor", str(copy), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["state"] == "failed"

    assert main(["doctor", "en-dee"]) == 1
    assert capsys.readouterr().err == (
        "regard: no model is called 'en-dee', and there is no such folder; did you mean 'en-de'?\n"
    )
