"""Point classification: what is trained is what is predicted, and augmentation keeps the shape."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.data.points.shapes import Shapes
from regard.modalities import PointPreprocess
from regard.models import build
from regard.tasks.points.point_base import random_rotations
from regard.tasks.points.point_classification import Config, PointClassifier

DATA = Shapes(examples=64, points=40)


def task(**settings):
    return Config(points=30, **settings).build(DATA)


def batch():
    return DATA.load("train").examples.take(torch.arange(6))


def in_double(batch):
    return replace(batch, points=batch.points.double())


def test_a_batch_is_a_part_of_the_points_around_its_mean():
    seen = task().augmented(batch(), torch.Generator().manual_seed(0)).points
    assert seen.shape == (6, 30, 3)
    torch.testing.assert_close(seen.mean(1), torch.zeros(6, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(seen.norm(dim=-1).amax(1), torch.ones(6))
    again = task().augmented(batch(), torch.Generator().manual_seed(0)).points
    assert torch.equal(seen, again)


def _generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", ["vertical", "any"])
def test_rotations_keep_distances_and_vertical_ones_keep_the_height(kind, double):
    turned = random_rotations(lambda *shape: torch.rand(*shape), 200, kind)
    torch.testing.assert_close(turned @ turned.mT, torch.eye(3).expand(200, 3, 3))
    torch.testing.assert_close(turned.det(), torch.ones(200))
    assert turned.mean(0)[:2, :2].abs().max() < 0.25
    if kind == "vertical":
        torch.testing.assert_close(turned[:, 2], torch.tensor([0.0, 0.0, 1.0]).expand(200, 3))
    still = task(rotation=kind).augmented(in_double(batch()), _generator(1)).points
    plain = task().augmented(in_double(batch()), _generator(1)).points
    torch.testing.assert_close(torch.cdist(still, still), torch.cdist(plain, plain))


def test_stretch_and_noise_move_the_points_as_much_as_asked():
    plain = task().augmented(batch(), _generator(1)).points
    stretched = task(stretch=0.2).augmented(batch(), _generator(1)).points / plain
    assert (stretched - stretched[:, :1]).abs().max() < 1e-3  # one factor an axis and cloud
    assert stretched.min() >= 0.8 - 1e-4
    assert stretched.max() <= 1.2 + 1e-4
    moved = task(noise=0.1).augmented(batch(), _generator(1)).points - plain
    assert moved.std().item() == pytest.approx(0.1, rel=0.1)


def test_the_metrics_of_a_split_are_those_of_its_predictions():
    torch.manual_seed(0)
    trained = task()
    model = build("point_transformer", size="tiny", num_classes=8).eval()
    found = trained.evaluate(model, "val")
    part = DATA.load("val").examples
    classify = PointClassifier(model, DATA.labels(), PointPreprocess(30))
    said = classify([cloud[:30] for cloud in part.points])
    right = [answer.label == DATA.labels()[label] for answer, label in zip(said, part.labels, strict=True)]
    nll = [-torch.tensor(a.probabilities[DATA.labels()[n]]).log() for a, n in zip(said, part.labels, strict=True)]
    assert found["accuracy"] == pytest.approx(sum(right) / len(right))
    assert found["loss"] == pytest.approx(float(sum(nll)) / len(nll), rel=1e-4)
    assert found["clouds"] == len(part.labels)


def test_a_model_learns_and_is_saved_with_what_it_needs(tmp_path):
    torch.manual_seed(0)
    trained = task()
    model = build("pointnet", size="tiny", num_classes=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(30):
        total, _ = trained.loss(model, DATA.load("train").examples, step, _generator(step))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item() / 64)
    assert losses[-1] < losses[0] - 0.3
    saved = trained.describe()
    classify = PointClassifier(model, saved["labels"], saved["preprocess"])
    regard.save(classify, tmp_path / "m")
    cloud = batch().points[0]
    assert regard.load(tmp_path / "m")(cloud) == classify(cloud)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="5 labels"):
        PointClassifier(build("pointnet", size="tiny", num_classes=3), list("abcde"), PointPreprocess(30))
