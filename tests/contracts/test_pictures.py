"""Laws of all models that read images, over the table: what any of them may be asked, at any size of image."""

from dataclasses import fields, replace
from importlib import import_module
from itertools import pairwise

import pytest
import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.spec import resolve
from regard.models import MODELS, build
from regard.models.contract import ImageModel
from regard.training.optimizers.optimizer import Optimizer, parameters_without_decay

NAMES = [
    name
    for name, (module, _) in MODELS.items()
    if {"image_size", "num_classes"} <= {f.name for f in fields(import_module(module).Config)}
    and issubclass(resolve(MODELS, name, "model"), ImageModel)
    and name != "ram"  # reads glimpses and has no grid of features (tests/models/test_ram.py)
]
SIZES = [(32, 32), (48, 80)]


def made(name, **settings):
    """A tiny one in float64, away from its initial weights, at which some answer the same to everything."""
    torch.manual_seed(3)
    model = build(name, size="tiny", **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def images(model, *size, rows=3):
    return torch.randn(rows, model.config.channels, *size, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
class TestEveryModelOfImages:
    def test_has_the_fields_and_the_methods_that_all_have(self, name):
        model = build(name, size="tiny")
        known = {f.name: f.default for f in fields(type(model.config))}
        assert (known["num_classes"], known["channels"]) == (1000, 3)
        assert known["image_size"] in (224, 256)
        assert {"pooled", "grid", "features"} <= set(model.forward_methods)
        assert isinstance(model.num_prefix_tokens, int)

    @pytest.mark.parametrize("size", SIZES, ids=str)
    def test_reads_images_of_any_size(self, name, size):
        model = made(name)
        with torch.no_grad():
            x = images(model, *size)
            assert model(x).shape == (3, 10)
            grid, pooled = model.grid(x), model.pooled(x)
        assert grid.ndim == 4
        assert (grid.shape[0], grid.shape[3]) == (3, pooled.shape[1])
        assert grid.shape[1] * size[1] == grid.shape[2] * size[0]  # these sizes are divided evenly
        assert pooled.std() > 0.01

    @pytest.mark.parametrize("training", [False, True])
    def test_of_no_images_gives_no_answers(self, name, training):
        model = made(name).train(training)
        x = images(model, 32, 32, rows=0)
        assert model(x).shape == (0, 10)
        assert model.pooled(x).shape[0] == model.grid(x).shape[0] == 0
        assert all(each.shape[0] == 0 and each.shape[2] > 0 for each in model.features(x))

    def test_gives_a_pyramid_of_features(self, name):
        model = made(name)
        x = images(model, 64, 96, rows=2)
        with torch.no_grad():
            found = model.features(x)
        rows = [each.shape[2] for each in found]
        assert [each.ndim for each in found] == [4] * len(found)
        assert all(above == 2 * below for above, below in pairwise(rows))
        assert all(each.shape[2] * 96 == each.shape[3] * 64 for each in found)
        assert all(each.std() > 0 for each in found)

    def test_a_batch_is_as_many_single_images(self, name):
        model = made(name)
        x = images(model, 40, 32)
        with torch.no_grad():
            whole, singles = model(x), torch.cat([model(one[None]) for one in x])
        torch.testing.assert_close(whole, singles, rtol=1e-9, atol=1e-9)
        assert (whole[0] - whole[1]).abs().max() > 1e-4  # and it tells them apart

    def test_the_head_reads_what_is_pooled(self, name):
        model = made(name)
        x = images(model, 32, 32)
        bare = build(name, size="tiny", num_classes=0).double().eval()
        bare.load_state_dict({n: v for n, v in model.state_dict().items() if n in bare.state_dict()})
        with torch.no_grad():
            torch.testing.assert_close(bare(x), model.pooled(x), rtol=1e-12, atol=1e-12)

    def test_every_weight_learns(self, name):
        model = made(name).train()
        (model(images(model, 32, 32)) ** 2).sum().backward()
        still = [n for n, p in model.named_parameters() if p.grad is None]
        assert still == []

    def test_only_maps_decay(self, name):
        """As published: norms, biases, learned tokens and all that says where a token is are spared."""
        model = build(name, size="tiny")
        parts = Optimizer(
            dict(model.named_parameters()), weight_decay=0.1, no_decay=parameters_without_decay(model)
        ).states
        decaying = {part.name for part in parts if part.weight_decay}
        maps = (nn.Linear, nn.Conv2d)
        linear = {f"{path}.weight" for path, part in model.named_modules() if isinstance(part, maps)}
        assert decaying == {each for each in linear if ".positions." not in each}

    def test_reads_other_numbers_of_channels_and_refuses_a_wrong_one(self, name):
        model = made(name, channels=1)
        with torch.no_grad():
            assert model(images(model, 32, 32)).shape == (3, 10)
        with pytest.raises(BadInput, match="channels"):
            model(torch.zeros(2, 3, 32, 32, dtype=torch.float64))


SHALLOW = {"swin": {"heads": (2,), "layers": (2,)}, "mvit": {"layers": (1, 1)}, "resnet": {"layers": (1, 1)}}
SHALLOW |= {"efficientnet_lite": {}, "lr_net": {"layers": (1, 1)}, "learn_to_pay_attention": {}}
SHALLOW |= {"swinv2": SHALLOW["swin"]} | {name: {"layers": 1} for name in NAMES if name not in (*SHALLOW, "swinv2")}
COMPILED = f"""
import torch
from regard.models import build
x = torch.randn(2, 3, 26, 45, dtype=torch.float64)
for name, settings in {SHALLOW}.items():
    model = build(name, size="tiny", **settings).double().eval()
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(x), model(x), msg=lambda said: name + said)
"""


@pytest.mark.long
def test_all_compile_as_one_graph_to_the_same(python):
    """In one process of its own: annotations are checked in this one, which dynamo cannot trace."""
    python(COMPILED)


def drops(model):
    return [module for module in model.modules() if type(module).__name__ == "DropPath" and module.p]


@pytest.mark.parametrize("name", NAMES)
def test_drop_path_grows_with_depth_and_is_off_in_evaluation(name):
    if not any(f.name == "drop_path" for f in fields(import_module(MODELS[name][0]).Config)):
        pytest.skip("it has none")
    model = made(name, drop_path=0.5)
    rates = [module.p for module in drops(model)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(0.5)
    x = images(model, 32, 32, rows=2)
    with torch.no_grad():
        assert torch.equal(model(x), model(x))
        assert not torch.equal(model.train()(x), model(x))


def test_these_are_all_there():
    assert {"vit", "deit", "swin", "swinv2", "mvit", "resnet", "cct"} <= set(NAMES)
    for name in NAMES:
        assert isinstance(build(name, size="tiny"), nn.Module)
        assert replace(build(name, size="tiny").config, channels=1).channels == 1
