"""Glimpses in an inspection, and the picture of their path."""

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard import see
from regard.core.errors import BadInput
from regard.interpret.figures import make_figure
from regard.interpret.inspection import inspect
from regard.modalities.image import Preprocess
from regard.tasks.image.glimpse_classification import GlimpseClassifier


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    model = regard.build("ram", size="tiny", num_classes=3)
    with torch.no_grad():
        model.locate.bias.copy_(torch.tensor([0.4, -5.0]))  # the first glimpse at the upper edge
        model.locate.weight.normal_(0, 4)
    return GlimpseClassifier(model, list("abc"), Preprocess((18, 24), 1, (0.5,), (0.5,)))


@pytest.fixture(scope="module")
def photo():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (36, 48, 3), dtype=np.uint8))


def test_inspection_places_every_glimpse_and_pixel(classifier, photo):
    found = inspect(classifier, {"image": photo, "paths": 3})
    about = found.about()
    assert about["output"]["label"] == classifier(photo, paths=3).label
    (described,) = about["maps"]
    assert (described["kind"], described["n"], described["m"]) == ("glimpse", 3, 18 * 24)
    path = classifier.glimpses(photo)
    np.testing.assert_allclose(found.centres, (path.numpy() + 1) / 2 * [24, 18], rtol=1e-5)
    glimpses, pixels = about["axes"]["glimpses"], about["axes"]["patches"]
    assert len(glimpses["tokens"]) == 3
    assert pixels["positions"][25] == {"box": [1, 1, 1, 1]}
    _, y, wide, high = glimpses["positions"][0]["box"]
    assert (y, wide) == (0, 4)
    assert high == 2  # half of it is outside
    for n, (left, top, width, height) in enumerate(each["box"] for each in glimpses["positions"]):
        row = found.row("retina", 0, n).reshape(18, 24)
        fine = row[top : top + height, left : left + width].sum()
        assert 0.1 < fine <= row.sum() <= 1 + 1e-5
    values = classifier.preprocess(photo, path)
    seen = classifier.model.retina(values, path[:1])
    np.testing.assert_allclose(found.seen[0].ravel(), seen[0].numpy(), rtol=1e-5, atol=1e-6)


def test_path_is_printed_and_drawn(classifier, photo, tmp_path):
    figure = make_figure(inspect(classifier, {"image": photo}), source="noise.png")
    assert "glimpse 3: row" in figure.text()
    assert "noise.png: " in figure.title
    figure.save(tmp_path / "path.png")
    drawn = np.asarray(Image.open(tmp_path / "path.png").convert("RGB")).astype(int)
    assert (np.abs(drawn - drawn.mean(-1, keepdims=True)).max(-1) > 40).mean() > 0.005  # coloured squares


def test_glimpses_that_cannot_be_drawn_are_refused(photo):
    for centres, sides, seen in (
        (np.zeros((0, 2)), [4], None),
        (np.zeros((2, 3)), [4], None),
        (np.full((2, 2), np.nan), [4], None),
        (np.zeros((2, 2)), [], None),
        (np.zeros((2, 2)), [4], np.zeros((3, 1, 4, 4))),
    ):
        with pytest.raises(BadInput, match="Expected"):
            see.glimpse_path(photo, centres, sides, seen=seen)
    assert see.glimpse_path(photo, np.array([[3.0, 4.0]]), [4, 8]).axes
