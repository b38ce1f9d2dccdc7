"""Every registered model keeps the contract that other packages rely on."""

import inspect
from dataclasses import fields, is_dataclass

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.core.shapes import pair
from regard.core.spec import resolve
from regard.models import MODELS
from regard.models.contract import ImageModel, ModelContract

IMAGE_MODELS = [name for name in MODELS if issubclass(resolve(MODELS, name, "model"), ImageModel)]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_keeps_the_contract(name):
    model = small(name)
    assert isinstance(model, ModelContract)
    assert is_dataclass(model.config)
    assert fields(model.config)
    for method in model.forward_methods:
        assert callable(getattr(model, method)), method
        assert method != "forward"
    parameters = dict(model.named_parameters())
    for module in model.modules():
        for own in getattr(module, "no_weight_decay", ()):
            held = getattr(module, own)
            assert held is None or isinstance(held, (torch.nn.Parameter, torch.nn.Module, torch.nn.ParameterList)), own
    assert parameters
    assert isinstance(model.num_prefix_tokens, int)
    assert isinstance(model.can_pack, bool)
    assert isinstance(model.encodes_source_once, bool)
    assert "config" in inspect.signature(type(model)).parameters


def small(name):
    words = (
        {"vocab": 30}
        if "vocab" in inspect.getmodule(resolve(MODELS, name, "model")).Config.__dataclass_fields__
        else {}
    )
    return regard.build(name, size="tiny", **words).eval()


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_image_models_have_the_api_of_timm(name):
    torch.manual_seed(0)
    model = small(name)
    images = torch.randn(2, model.config.channels, *pair(model.config.image_size))
    with torch.no_grad():
        assert model(images).shape == (2, model.config.num_classes)
        features = model.forward_features(images)
        assert model.num_features in features.shape
        assert model.pooled(images).shape == (2, model.num_features)
        model.reset_classifier(7)
        assert model(images).shape == (2, 7)
        assert model.config.num_classes == 7
        torch.testing.assert_close(model.forward_features(images), features)
        model.reset_classifier(0)
        torch.testing.assert_close(model(images), model.pooled(images))
    with pytest.raises(BadInput, match="at least 0"):
        model.reset_classifier(-1)


def test_a_model_with_a_new_classifier_can_be_saved(tmp_path):
    model = small("vit")
    model.reset_classifier(3)
    regard.save(model, tmp_path / "m")
    images = torch.randn(1, model.config.channels, *pair(model.config.image_size))
    assert torch.equal(regard.load(tmp_path / "m")(images), model(images))


def test_models_are_exported_by_their_class_names():
    from regard.models import GPT, ViT

    assert ViT.__module__ == "regard.models.vit"
    assert GPT.__module__ == "regard.models.gpt"
    assert "Swin" in dir(regard.models)
    with pytest.raises(AttributeError, match="Nonsense"):
        regard.models.Nonsense  # noqa: B018
