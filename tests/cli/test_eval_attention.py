"""``regard eval --attention``: the same weights under another mechanism, and refusals that say what to do."""

import json

import pytest

from regard import cli
from regard.api import load
from regard.attention import MECHANISMS
from regard.core.errors import BadInput


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("Two dogs are playing in the snow. " * 120)
    return file


def run(*words):
    return cli.main(["eval", "shakespeare", "--split", "val", "--limit", "2", "--device", "cpu", *words])


def test_scores_of_both_are_printed_and_written(text, tmp_path, capsys):
    out = tmp_path / "found.json"
    assert run("--data", str(text), "--attention", "softmax", "--attention", "linear", "-o", str(out)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["val", "val, softmax", "val, linear"]
    found = json.loads(out.read_text())
    before, same, other = (
        each["val"]["loss"] for each in (found["results"], found["attention"]["softmax"], found["attention"]["linear"])
    )
    assert same == pytest.approx(before, rel=1e-5)
    assert other > before


def test_a_mechanism_with_parameters_is_refused_with_the_way_out(text, capsys, monkeypatch):
    monkeypatch.setitem(MECHANISMS, "scaled", ("tests.models.test_replace_attention", "ScaledSoftmax"))
    assert run("--data", str(text), "--attention", "scaled") == 1
    assert "train.init_from" in capsys.readouterr().err
    assert run("--data", str(text), "--attention", "linaer") == 1
    assert "did you mean 'linear'" in capsys.readouterr().err


def test_one_that_does_not_fit_does_not_lose_the_others(text, tmp_path, capsys):
    out = tmp_path / "found.json"
    assert run("--data", str(text), "--attention", "nystrom", "--attention", "linear", "-o", str(out)) == 1
    found = json.loads(out.read_text())
    assert set(found["attention"]) == {"linear"}
    assert "no mask of kind causal" in found["refused"]["nystrom"]
    assert "nystrom: " in capsys.readouterr().err


def test_what_does_not_fit_is_said_before_anything_is_measured(text, capsys, monkeypatch):
    def measure(*_, **__):
        raise BadInput("measured")

    monkeypatch.setattr("regard.training.evaluate", measure)
    assert run("--data", str(text), "--attention", "nystrom") == 1
    said = capsys.readouterr().err
    assert 0 < said.index("no mask of kind causal") < said.index("measured")


def test_fine_tuning_starts_from_the_old_weights(tmp_path, capsys):
    """The command that the refusal names: another mechanism, begun with the weights of a saved model."""
    words = ("train.steps=2", "train.warmup_steps=1", "train.eval_interval=2", "train.device=cpu", "data.limit=4")
    model = load("shakespeare").model
    sizes = [f"model.{name}={getattr(model.config, name)}" for name in ("width", "heads", "layers", "ffn", "length")]
    init = ["train.init_from=shakespeare", "model.attention=linear", *sizes, *words]
    assert cli.main(["train", "gpt_shakespeare_cpu", *init, "--out", str(tmp_path / "run")]) == 0
    assert "tensors copied" in capsys.readouterr().err
    assert load(tmp_path / "run").model.config.attention == "linear"
