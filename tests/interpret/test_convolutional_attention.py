"""Attention inside convolutional networks on the pixels, and what `regard see` draws of it."""

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.core.errors import BadInput, RegardError
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.image_attribution import run_with_attribution
from regard.interpret.inspection import inspect
from regard.modalities.image import Preprocess
from regard.tasks.image.image_classification import ImageClassifier

SIZE = (30, 44)  # divided by no stride
SELF = {
    "non-local": ("resnet", {"non_local": (1, 2)}),
    "large stem": ("resnet", {"non_local": (0, 2), "stem": "large"}),
}


def built(name, **settings):
    torch.manual_seed(0)
    model = regard.build(name, size="tiny", num_classes=5, **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # away from the identity
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def classifier(name, **settings):
    return ImageClassifier(built(name, **settings).float(), list("abcde"), Preprocess((32, 32)))


def figure(predictor, **options):
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))
    return make_figure(inspect(predictor, {"image": photo}), FigureOptions(**options), "noise.png")


@pytest.mark.parametrize("name", SELF)
def test_maps_lie_on_the_pixels(name):
    kind, settings = SELF[name]
    model, image = built(kind, **settings), torch.randn(1, 3, *SIZE, dtype=torch.float64)
    sight, logits = run_with_attribution(model, image, gradients=True, answer=2)
    assert torch.equal(logits, model(image)[0])
    assert not sight.exact
    every = [h for n in range(len(sight.layers)) for h in sight.heads(n)]
    for found in (sight.rollout(), sight.relevance(), *every):
        assert found.shape == SIZE
        assert found.min() >= 0
        assert found.max() > found.min()
    assert 0.3 < sight.rollout().sum() <= 1 + 1e-6
    for down, right in ((0.05, 0.05), (0.9, 0.95)):  # around attention, a token stays where it is
        stayed = sight.rollout((down, right), residual=1.0)
        assert stayed[int(down * SIZE[0]), int(right * SIZE[1])] > 0


def test_gates_of_channels_are_drawn(tmp_path):
    found = figure(classifier("resnet", squeeze_excitation=True))
    assert found.view == "gates"
    assert [len(gate) for gate in found.maps.values()] == [8, 16, 32, 64]
    assert found.text().count("channels") == 4
    found.save(tmp_path / "gates.png")
    assert Image.open(tmp_path / "gates.png").size[0] > 500


def test_models_without_such_weights_say_so():
    assert figure(classifier("resnet")).view == "gradcam"
    with pytest.raises(RegardError, match="nothing attends in this ResNet"):
        figure(classifier("resnet"), view="class")
    with pytest.raises(BadInput, match="no channel gates"):
        figure(classifier("resnet", non_local=(1,)), view="gates")
    with pytest.raises(RegardError, match="pools its tokens"):
        figure(classifier("resnet", non_local=(1,)), view="pooling")


def test_non_local_blocks_and_poolings_are_drawn(tmp_path):
    found = figure(classifier("resnet", non_local=(1,)))
    assert found.view == "class"
    found.save(tmp_path / "class.png")
    pooled = figure(classifier("cct"), view="pooling")
    assert list(pooled.maps) == ["pool"]
    assert pooled.maps["pool"].mean() == pytest.approx(1, rel=1e-4)
    pooled.save(tmp_path / "pooling.svg")
