"""``regard classify``, ``see`` and ``run`` with files of point clouds."""

import json

import numpy as np
import pytest
import torch

import regard
from regard import cli
from regard.cli.point_clouds import are_point_clouds
from regard.modalities import PointPreprocess
from regard.models import build
from regard.tasks.points.point_classification import PointClassifier

LABELS = ["cone", "cube", "disc"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("zoo") / "points"
    regard.save(
        PointClassifier(build("point_transformer", size="tiny", num_classes=3), LABELS, PointPreprocess(40)), place
    )
    return place


@pytest.fixture
def clouds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.standard_normal((60, 3)))
    np.savetxt(tmp_path / "b.xyz", rng.standard_normal((50, 3)))
    (tmp_path / "broken.ply").write_bytes(b"ply\nformat ascii 1.0\n")
    return tmp_path


def test_clouds_are_told_by_their_names(clouds):
    assert are_point_clouds(["a.npy"])
    assert are_point_clouds(["nowhere.PLY"])
    assert not are_point_clouds(["I read the file shape.ply"])
    assert not are_point_clouds(None)


def test_files_are_classified_one_after_the_other(folder, clouds, capsys):
    assert cli.main(["classify", "a.npy", "--model", str(folder)]) == 0
    label, probability = capsys.readouterr().out.strip().split("\t")
    found = regard.load(folder)("a.npy")
    assert (label, float(probability)) == (found.label, pytest.approx(found.probability, abs=1e-4))
    assert cli.main(["classify", "a.npy", "broken.ply", "b.xyz", "--model", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert [line.split("\t")[0] for line in out.splitlines()] == ["a.npy", "broken.ply", "b.xyz"]
    assert "has no end" in err
    assert cli.main(["run", str(folder), "a.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == found.label


def test_a_model_of_another_kind_and_options_of_texts_are_refused(folder, clouds, capsys):
    assert cli.main(["classify", "a.npy", "--model", "fashion"]) != 0
    assert "which takes none" in capsys.readouterr().err
    assert cli.main(["classify", "a.npy", "--labels", "a,b"]) != 0
    assert "for texts" in capsys.readouterr().err
    assert cli.main(["classify", "nosuch.ply"]) == 1
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "regard: there is no file nosuch.ply\n")


def test_see_draws_the_cloud(folder, clouds, capsys):
    assert cli.main(["see", "b.xyz", "--model", str(folder), "--layer", "0", "--output", "b.png"]) == 0
    assert "50 points" in capsys.readouterr().out
    assert (clouds / "b.png").stat().st_size > 1000
