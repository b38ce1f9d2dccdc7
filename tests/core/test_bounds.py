"""What makes no model, task or training is said in one line, before anything is built."""

import math
from dataclasses import fields, replace
from importlib import import_module

import pytest
import torch

import regard
from regard.core.bounds import within
from regard.core.errors import BadInput, RegardError
from regard.cost import imagine
from regard.models import MODELS as EVERY
from regard.tasks import TASKS
from regard.tasks.reinforced import Reinforce
from regard.training.recipe import Train, load, override

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
    ("mvit", {"layers": ()}, "layers is empty; at least one number is needed"),
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


SEQUENCES = [
    ("seq2seq", {"width": -1}, "width is -1; at least 1 is needed"),
    ("seq2seq", {"hidden": 0}, "hidden is 0; at least 1"),
    ("rnnsearch", {"layers": -1}, "layers is -1; at least 1"),
    ("rnnsearch", {"pad": 50}, "pad is 50; of 50 tokens the last is 49"),
    ("luong", {"dropout": 7.0}, r"dropout is 7\.0; it is a share"),
    ("bytenet", {"stretch": -1.0}, r"stretch is -1\.0; a number above 0"),
    ("bytenet", {"spare": -100.0}, r"spare is -100\.0; a number of 0 or more"),
    ("bytenet", {"dilations": ()}, "dilations is empty; at least one number"),
    ("convs2s", {"wider": ((0, 3),)}, r"wider is \(\(0, 3\),\); at least 1"),
    ("neural_gpu", {"rows": 0}, "rows is 0; at least 1"),
    ("online", {"offset": 1e9}, "offset is 1000000000.0; a number from -30 to 30"),
    ("ctc", {"layers": 0}, "layers is 0; at least 1"),
    ("ctc", {"halvings": 12}, "halvings is 12; a number from 0 to 6"),
    ("listener", {"front": 0}, "front is 0; at least 1"),
    ("elmo", {"filters": ()}, "filters is empty"),
    ("t5", {"activation_dropout": 1.0}, r"activation_dropout is 1\.0; it is a share"),
    ("bert", {"eps": 0.0}, r"eps is 0\.0; a number above 0"),
    ("word2vec", {"vocab": 0}, "vocab is 0; at least 1"),
    ("handwriting", {"vocab": -1}, "vocab is -1; at least 0"),
]


@pytest.mark.parametrize(("name", "settings", "said"), SEQUENCES)
def test_numbers_of_models_over_sequences(name, settings, said):
    with pytest.raises(BadInput, match=said):
        regard.build(name, **{"vocab": 50} | settings)


def configs():
    """Every Config that is made without anything said, and what stands before the names of its settings."""
    for name, (room, _) in EVERY.items():
        cls = import_module(room).Config
        needed = {field.name: 9 for field in fields(cls) if field.name in ("vocab", "states", "actions")}
        yield name, "", cls(**needed)
    for name, (room, _) in TASKS.items():
        yield name, "task.", import_module(room).Config()
    yield "train", "train.", Train()
    yield "reinforce", "task.reinforce.", Reinforce()


@pytest.mark.parametrize(
    ("name", "group", "config"), list(configs()), ids=lambda value: value if type(value) is str else ""
)
def test_no_number_of_any_config_is_left_out(name, group, config):
    within(config, group)
    for field in fields(config):
        kind = str(field.type)
        if kind.startswith(("int", "float", "tuple[int", "tuple[float")) and field.name != "seed":
            wrong = math.nan if "float" in kind else -1
            wrong = (wrong,) if kind.startswith("tuple") else wrong
            with pytest.raises(BadInput, match=rf"^{group}{field.name} is "):
                within(replace(config, **{field.name: wrong}), group)


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("pronounce_cpu", "model.width=-5", "model.width is -5; at least 1"),
        ("pronounce_cpu", "task.smoothing=2", r"task.smoothing is 2\.0; it is a share"),
        ("pronounce_cpu", "train.steps=-3", "train.steps is -3; at least 1"),
        ("pronounce_cpu", "train.betas=(0.9, 1)", r"train.betas is \(0\.9, 1\.0\); it is a share"),
        ("pronounce_cpu", "train.floor=2", r"train.floor is 2\.0; a number from 0 to 1"),
        ("online_pronounce", "task.reinforce.fade=-1", "task.reinforce.fade is -1; at least 0"),
        ("vit_cifar10", "task.mixup=1e9", "task.mixup is 1000000000.0; a number from 0 to 100"),
        ("vit_cifar10", "data.val=1", r"data.val=1\.0: a share, more than 0 and less than 1"),
        ("vit_cifar10", "data.share=0", r"data.share=0\.0: a share, more than 0 and at most 1"),
    ],
)
def test_settings_of_a_recipe(name, setting, said):
    with pytest.raises(BadInput, match=said):
        override(load(name), [setting])
