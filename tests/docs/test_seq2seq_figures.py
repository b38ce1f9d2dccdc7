"""The figures of "Before the Transformer" come from result files, and its commands make every run of its tables."""

import importlib
import json
import shlex

import pytest

from .blocks import ROOT


@pytest.fixture
def drawing(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("make_seq2seq_figures")


def run(name, *scores, beam_size=5):
    counts = (37, 402, 3)
    ends = ((1, 5), (6, 10), (31, None))
    rows = [
        {"from": a, "to": b, "count": n, "bleu_tokenized": x} for (a, b), n, x in zip(ends, counts, scores, strict=True)
    ]
    found = {"split": "test_2016_flickr", "metric": "bleu_tokenized", "value": 1.0, "beam_size": beam_size}
    return {"name": name, "by_length": {"test_2016_flickr": rows}, "scores": [found]}


def test_length_curve_is_the_mean_of_seeds_over_large_buckets(drawing, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        drawing.see,
        "score_by_length",
        lambda lines, file, *_, counts, background, background_label: drawn.update(
            {file.name: (lines, counts, background)}
        ),
    )
    runs = [
        run("nmt-de-en-seq2seq-1", 30.0, 20.0, 1.0),
        run("nmt-de-en-seq2seq-2", 32.0, 24.0, 9.0),
        run("nmt-de-en-additive-1", 31.0, 33.0, 4.0),
        run("nmt-de-en-dot-1", 30.0, 34.0, 4.0),
        run("nmt-de-en-bilinear-1", 9.0, 9.0, 9.0, beam_size=1),  # another search is not drawn
    ]
    assert drawing.plot_bleu_by_length(runs, "de-en", tmp_path) == [tmp_path / "nmt-de-en.png"]
    lines, counts, behind = drawn["nmt-de-en.png"]
    assert counts == {"1-5": 37, "6-10": 402}  # three sentences say nothing
    assert lines == {
        "GRU, fixed context vector, no attention": {"1-5": 31.0, "6-10": 22.0},
        "GRU, attention: additive (MLP)": {"1-5": 31.0, "6-10": 33.0},
    }
    assert behind == {"GRU, attention: dot": {"1-5": 30.0, "6-10": 34.0}}
    assert drawing.plot_bleu_by_length(runs[:2], "de-en", tmp_path) == []  # one line compares nothing


def test_figures_clip_large_errors(drawing, tmp_path):
    cases = [
        {
            "words": n,
            "letters": 8 * n,
            "contenders": {"additive": {"per": 3.0 * n}, "gmm": {"per": 5}},
        }
        for n in (1, 8, 128)
    ]
    (file,) = drawing.plot_long_sources({"max_training_letters": 60, "cases": cases}, tmp_path)
    assert file.stat().st_size > 3000
    runs = [run(f"nmt-en-de-{s}", 30.0, 20.0, 1.0) for s in ("seq2seq", "dot")]
    (file,) = drawing.plot_bleu_by_length(runs, "en-de", tmp_path)
    assert file.stat().st_size > 3000


def test_commands_train_evaluate_and_add_every_run(drawing, capsys):
    assert drawing.main(["--commands", "2", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(drawing.PAIRS) * len(drawing.SYSTEMS)
    for line in lines:
        train, beams, greedy, add = ([*shlex.split(part)] for part in line.split(" && "))
        folder = train[train.index("--out") + 1]
        assert beams == ["regard", "eval", folder, "--output", f"{folder}/evaluation.json"]
        assert greedy[2:5] == [folder, "--beam-size", "1"]
        assert add[add.index("--name") + 1] == folder.removeprefix("runs/")
        assert shlex.split(add[add.index("--command") + 1]) == train
    assert json.dumps(lines).count("train.seed=3") == len(lines)  # once to train, once to be told
