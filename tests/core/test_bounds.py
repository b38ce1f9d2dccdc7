"""What makes no model over images is said in one line, before anything is built."""

import pytest
import torch

import regard
from regard.core.errors import BadInput, RegardError
from regard.cost import imagine

MODELS = ("vit", "deit", "swin", "swinv2", "mvit", "cct", "resnet")
NOT_ALL = {"patch": ("cct", "resnet"), "heads": ("resnet",), "attention_dropout": ("mvit", "resnet")}
WRONG = [
    ("drop_path", -0.1, "a share"),
    ("drop_path", 1.0, "a share"),
    ("dropout", 2.0, "a share"),
    ("attention_dropout", -1.0, "a share"),
    ("image", 0, "at least 1"),
    ("image", (32, 0), "at least 1"),
    ("patch", 0, "at least 1"),
    ("patch", -4, "at least 1"),
    ("channels", 0, "at least 1"),
    ("width", 0, "at least 1"),
    ("classes", -1, "at least 0"),
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("field", "value", "said"), WRONG)
def test_numbers_that_no_model_can_have(name, field, value, said):
    if name in NOT_ALL.get(field, ()):
        pytest.skip("it has no such field")
    with pytest.raises(BadInput, match=rf"{field} is .*{said}"):
        regard.build(name, size="tiny", **{field: value})


OWN = [
    ("vit", {"layers": -1}, "layers is -1; at least 1"),
    ("vit", {"prefix": -1}, "prefix is -1; at least 0"),
    ("vit", {"ffn": 0}, "ffn is 0; at least 1"),
    ("vit", {"heads": 5}, "5 heads must divide the width 96"),
    ("swin", {"window": 0}, "window is 0; at least 1"),
    ("swin", {"window": -2}, "window is -2; at least 1"),
    ("swin", {"layers": (2, 0, 2)}, r"layers is \(2, 0, 2\); at least 1"),
    ("swin", {"ratio": 0.0}, "ratio is 0.0; a number above 0"),
    ("swinv2", {"window": 0}, "window is 0; at least 1"),
    ("swinv2", {"trained": (4, 4)}, "must name as many stages"),
    ("mvit", {"layers": ()}, "layers is empty; give a number for each stage"),
    ("mvit", {"frames": 0}, "frames is 0; at least 1"),
    ("mvit", {"keys": 0}, "keys is 0; at least 1"),
    ("cct", {"ratio": -1.0}, "ratio is -1.0; a number above 0"),
    ("cct", {"convolutions": 0}, "convolutions is 0; at least 1"),
    ("cct", {"kernel": 0}, "kernel is 0; at least 1"),
    ("resnet", {"layers": (0,)}, "at least 1"),
]


@pytest.mark.parametrize(("name", "settings", "said"), OWN)
def test_numbers_of_one_model(name, settings, said):
    with pytest.raises(RegardError, match=said):
        regard.build(name, size="tiny", **settings)


@pytest.mark.parametrize("name", MODELS)
def test_images_without_a_pixel_are_refused_and_those_of_one_are_read(name):
    model = regard.build(name, size="tiny").eval()
    with pytest.raises(BadInput, match="0 x 32 have no pixel"):
        model(torch.zeros(1, 3, 0, 32))
    with torch.no_grad():
        assert torch.isfinite(model(torch.randn(1, 3, 1, 1))).all()


def test_the_cost_of_an_impossible_model_is_its_own_line():
    with pytest.raises(BadInput, match=r"drop_path is -1\.0; it is a share"):
        imagine.build(imagine.config_of("vit", "b16", ["drop_path=-1"]))
    with pytest.raises(BadInput, match="patch is 0; at least 1"):
        imagine.build(imagine.config_of("vit", "b16", ["patch=0"]))
