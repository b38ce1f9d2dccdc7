"""The lecture's figure, ViT against ResNet on shares of the images, comes from result files."""

import importlib
from math import nan

import pytest

from .blocks import ROOT


@pytest.fixture
def drawing(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("make_data_fraction_figure")


@pytest.fixture
def section(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("results_images")


def run(name, right, seed=1):
    scores = [{"split": "val", "metric": "accuracy", "unit": "image", "value": 0.99}]
    scores += [{"split": "test", "metric": "accuracy", "unit": "image", "value": right}]
    return {
        "name": name,
        "seed": seed,
        "system": name,
        "corpus": "cifar10",
        "task": "image_classification",
        "scores": scores,
    }


RUNS = [
    run("fraction-vit-5", 0.5),
    run("vit-cifar10-1", 0.8),
    run("vit-cifar10-2", 0.9, 2),
    run("fraction-resnet-5", 0.7),
    run("fraction-resnet-50", 0.9),
    run("resnet-cifar10", 0.95),
    run("resnet-cifar10-300", 0.96),
    run("resnet-cifar10-small", 0.94),
    run("cct-cifar10", 0.97),
    run("vit-cifar10-jpeg-1", 0.6),
]


def test_data_fraction_line_is_the_mean_of_seeds(drawing, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(drawing.see, "score_by_length", lambda lines, *_, counts: drawn.append((lines, counts)))
    assert drawing.plot_fractions(RUNS, tmp_path / "x.png") == [tmp_path / "x.png"]
    ((lines, counts),) = drawn
    vit, resnet = lines.values()
    assert vit == pytest.approx({"5 %": 50.0, "50 %": nan, "100 %": 85.0}, nan_ok=True)
    assert resnet == pytest.approx({"5 %": 70.0, "50 %": 90.0, "100 %": 95.0})  # not those of 300 epochs, nor small
    assert list(vit) == ["5 %", "50 %", "100 %"]  # in this order, though the ViT lacks one
    assert counts == {"5 %": 2250, "50 %": 22500, "100 %": 45000}
    assert drawing.plot_fractions(RUNS[:1], tmp_path / "x.png") == []  # a point is no line


def test_figure_is_drawn_over_gaps(drawing, tmp_path):
    (file,) = drawing.plot_fractions(RUNS, tmp_path / "data-fractions.png")
    assert file.stat().st_size > 3000


def test_data_fraction_runs_are_only_in_their_table(section):
    page = "\n".join(section.images_section(RUNS, []))
    tables, plot_fractions = page.split("### ViT against ResNet")
    assert "fraction-vit-5" not in tables
    assert "| **resnet-cifar10-300** | 96.0 |" in tables
    assert "| 50.00 | not measured yet | not measured yet | 85.00 (80.00 to 90.00) | 1, 2 |" in plot_fractions
    copy = "| **plain ViT, 3.7 M (JPEG copy)** | not measured yet | not measured yet | not measured yet | 60.00 | 1 |"
    assert copy in plot_fractions
