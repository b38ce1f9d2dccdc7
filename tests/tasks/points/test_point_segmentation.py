"""Segmentation of point clouds: every given point has a label, and what is trained is what is predicted."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard import cli
from regard.core.errors import BadInput
from regard.data.points.scenes import PointScenes
from regard.data.points.shapes import Shapes
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.inspection import inspect
from regard.modalities import PointCloud, PointLabels, PointPreprocess
from regard.models import build
from regard.models.pointnet import Config as PointNetConfig
from regard.tasks.points.point_classification import PointClassifier
from regard.tasks.points.point_segmentation import Config, PointSegmenter

DATA = PointScenes(examples=24, points=60)


def segmenter(most=40, name="point_transformer"):
    torch.manual_seed(0)
    return PointSegmenter(
        build(name, size="tiny", num_classes=3, head="points"), ["floor", "cube", "cone"], PointPreprocess(most)
    )


def test_scenes_have_a_floor_and_shapes_on_it_and_depend_on_the_seed():
    data = PointScenes(examples=40, points=400, noise=0.0)
    batch = data.load("train").examples
    assert batch.points.shape == (40, 400, 3)
    assert batch.labels.shape == (40, 400)
    assert batch.labels.unique().tolist() == list(range(9))
    assert (batch.points[batch.labels == 0][:, 2] == 0).all()
    assert (batch.points[..., 2] >= -1e-5).all()
    assert all(2 <= len(labels.unique()) <= 6 for labels in batch.labels)
    assert torch.equal(batch.points, data.load("train").examples.points)
    assert not torch.equal(batch.points[:5], data.load("val").examples.points)
    assert not torch.equal(batch.points, replace(data, seed=1).load("train").examples.points)
    first = batch.labels[:, :100].float().mean(1) - batch.labels.float().mean(1)
    assert first.abs().mean() < 0.5  # the order is random, so the first points are a sample


def test_labels_stay_with_their_points():
    task = Config(points=30, rotation="vertical", stretch=0.1).build(DATA)
    batch = DATA.load("train").examples.take(torch.arange(4))
    marked = replace(batch, labels=(batch.points[..., 2] > 0.3).long())
    seen = task.augmented(marked, torch.Generator().manual_seed(0))
    assert seen.labels.shape == (4, 30)
    for points, labels in zip(seen.points, seen.labels, strict=True):  # heights keep their order
        if 0 < labels.sum() < 30:
            assert points[labels == 1][:, 2].min() > points[labels == 0][:, 2].max()


def test_every_given_point_gets_the_label_that_the_model_gives_it():
    segment, rng = segmenter(), np.random.default_rng(0)
    cloud = rng.standard_normal((40, 3)).astype(np.float32)
    given = cloud[[*range(40), 3, 3, 0]]  # three repeat others
    found = segment(given)
    with torch.no_grad():
        logits = segment.model(segment.preprocess(cloud)[None])[0]
    assert found.labels.tolist() == logits.argmax(-1)[[*range(40), 3, 3, 0]].tolist()
    torch.testing.assert_close(found.scores[:40], logits.softmax(-1).amax(-1))
    assert sum(found.counts().values()) == 43
    again = PointLabels.from_json(found.to_json())
    assert found.difference(again) == 0
    assert found.difference(segment(cloud)) == 1.0  # not the same points


@pytest.mark.parametrize("count", [41, 80, 97])
def test_a_larger_cloud_is_seen_in_parts_that_have_every_point(count):
    preprocess = PointPreprocess(40)
    cloud = torch.randn(count, 3, generator=torch.Generator().manual_seed(1))
    parts = list(preprocess.parts(cloud))
    assert {len(points) for _, points in parts} == {40}
    assert sorted({n for rows, _ in parts for n in rows.tolist()}) == list(range(count))
    assert torch.equal(parts[0][1], preprocess(cloud))
    segment = segmenter()
    found = segment(cloud)
    with torch.no_grad():
        for rows, points in parts[-1:]:
            assert found.labels[rows].tolist() == segment.model(points[None])[0].argmax(-1).tolist()


def test_the_metrics_of_a_split_are_those_of_its_predictions():
    torch.manual_seed(0)
    task = Config(points=40).build(DATA)
    model = build("point_transformer", size="tiny", num_classes=9, head="points").eval()
    found, part = task.evaluate(model, "val"), DATA.load("val").examples
    segment = PointSegmenter(model, DATA.labels(), PointPreprocess(40))
    said = torch.stack([answer.labels for answer in segment([cloud[:40] for cloud in part.points])])
    true = part.labels[:, :40]
    assert found["point_accuracy"] == pytest.approx((said == true).double().mean().item())
    overlaps = [((said == k) & (true == k)).sum() / ((said == k) | (true == k)).sum() for k in range(9)]
    assert found["miou"] == pytest.approx(float(torch.stack(overlaps).double().nanmean()), rel=1e-5)
    assert found["clouds"] == 3


@pytest.mark.parametrize("name", ["point_transformer", "pointnet"])
def test_a_model_learns_and_is_saved_with_what_it_needs(name, tmp_path):
    torch.manual_seed(0)
    task = Config(points=60).build(DATA)
    model = build(name, size="tiny", num_classes=9, head="points")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(25):
        total, _ = task.loss(model, DATA.load("train").examples, step, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item() / 24)
    assert losses[-1] < losses[0] - 0.3
    saved = task.describe()
    segment = PointSegmenter(model, saved["labels"], saved["preprocess"])
    regard.save(segment, tmp_path / "m")
    cloud = DATA.load("val").examples.points[0]
    assert regard.load(tmp_path / "m")(cloud).difference(segment(cloud)) == 0


def test_the_figure_and_the_command_colour_points_by_their_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cloud = np.random.default_rng(0).standard_normal((70, 3))
    np.save("scene.npy", cloud)
    regard.save(segmenter(), "model")
    assert cli.main(["run", "model", "scene.npy", "--out", "labels.png"]) == 0
    out = capsys.readouterr().out
    assert sum(int(line.split("\t")[1].split()[0]) for line in out.strip().splitlines()) == 70
    assert cli.main(["see", "scene.npy", "--model", "model", "--view", "labels", "--output", "seen.png"]) == 0
    assert all((tmp_path / name).stat().st_size > 5000 for name in ("labels.png", "seen.png"))
    seen = inspect(segmenter(), {"points": cloud.tolist()}, name="m")
    assert {(held["n"], held["m"]) for held in seen.about()["maps"]} == {(40, 40)}
    assert len(seen.output["labels"]) == 70
    make_figure(seen, FigureOptions(), "scene").save(tmp_path / "attention.png")
    classify = PointClassifier(build("pointnet", size="tiny", num_classes=2), ["a", "b"], PointPreprocess(40))
    shape = inspect(classify, {"points": cloud.tolist()}, name="m")
    with pytest.raises(BadInput, match="label for every point"):
        make_figure(shape, FigureOptions(view="labels")).save(tmp_path / "none.png")


def test_what_does_not_fit_is_refused():
    task = Config(points=20).build(Shapes(examples=8, points=20))
    with pytest.raises(BadInput, match="labels of clouds, not of points"):
        task.loss(build("pointnet", size="tiny", num_classes=8), task.data.load("train").examples)
    assert Config().build(DATA).fit(PointNetConfig()).head == "points"
    with pytest.raises(BadInput, match="one place"):
        segmenter()(np.zeros((5, 3)))
    with pytest.raises(BadInput, match="0 to 1, got 0 to 2"):
        PointLabels(torch.tensor([0, 2]), torch.ones(2), ("a", "b"))
    with pytest.raises(BadInput, match="2 labels have 1 scores"):
        PointLabels(torch.tensor([0, 1]), torch.ones(1), ("a", "b"))
    assert PointCloud.read([[0, 0, 0], [1, 1, 1], [0, 0, 0]]).given.tolist() == [0, 1, 0]
