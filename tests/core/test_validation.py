"""What makes no model, task or training is said in one line, before anything is built."""

import math
from dataclasses import fields, replace
from importlib import import_module

import pytest
import torch

import regard
from regard.core.errors import BadInput, RegardError
from regard.core.validation import validate
from regard.cost import meta_model
from regard.models import MODELS as EVERY
from regard.tasks import TASKS
from regard.tasks.reinforce import Reinforce
from regard.training.recipe import Train, load_recipe, override_recipe

MODELS = ("vit", "deit", "swin", "swinv2", "mvit", "cct", "resnet")
NOT_ALL = {"patch_size": ("cct", "resnet"), "heads": ("resnet",), "attention_dropout": ("mvit", "resnet")}
WRONG = [
    ("drop_path", -0.1, "a share"),
    ("drop_path", 1.0, "a share"),
    ("dropout", 2.0, "a share"),
    ("attention_dropout", -1.0, "a share"),
    ("image_size", 0, "at least 1"),
    ("image_size", (32, 0), "at least 1"),
    ("patch_size", 0, "at least 1"),
    ("patch_size", -4, "at least 1"),
    ("channels", 0, "at least 1"),
    ("width", 0, "at least 1"),
    ("num_classes", -1, "at least 0"),
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
    ("vit", {"num_prefix_tokens": -1}, "num_prefix_tokens is -1; at least 0"),
    ("vit", {"ffn": 0}, "ffn is 0; at least 1"),
    ("vit", {"heads": 5}, "5 heads must divide the width 96"),
    ("swin", {"window_size": 0}, "window_size is 0; at least 1"),
    ("swin", {"window_size": -2}, "window_size is -2; at least 1"),
    ("swin", {"layers": (2, 0, 2)}, r"layers is \(2, 0, 2\); at least 1"),
    ("swin", {"mlp_ratio": 0.0}, "mlp_ratio is 0.0; a number above 0"),
    ("swinv2", {"window_size": 0}, "window_size is 0; at least 1"),
    ("swinv2", {"pretrained_window_sizes": (4, 4)}, "must name as many stages"),
    ("mvit", {"layers": ()}, "layers is empty; at least one number is needed"),
    ("mvit", {"num_frames": 0}, "num_frames is 0; at least 1"),
    ("mvit", {"kv_stride": 0}, "kv_stride is 0; at least 1"),
    ("cct", {"mlp_ratio": -1.0}, "mlp_ratio is -1.0; a number above 0"),
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
        meta_model.build(meta_model.resolve_config("vit", "b16", ["drop_path=-1"]))
    with pytest.raises(BadInput, match="patch_size is 0; at least 1"):
        meta_model.build(meta_model.resolve_config("vit", "b16", ["patch_size=0"]))


SEQUENCES = [
    ("seq2seq", {"width": -1}, "width is -1; at least 1 is needed"),
    ("seq2seq", {"hidden": 0}, "hidden is 0; at least 1"),
    ("rnnsearch", {"layers": -1}, "layers is -1; at least 1"),
    ("rnnsearch", {"pad": 50}, "pad is 50; of 50 tokens the last is 49"),
    ("luong", {"dropout": 7.0}, r"dropout is 7\.0; it is a share"),
    ("bytenet", {"length_ratio": -1.0}, r"length_ratio is -1\.0; a number above 0"),
    ("bytenet", {"length_offset": -100.0}, r"length_offset is -100\.0; a number of 0 or more"),
    ("bytenet", {"dilations": ()}, "dilations is empty; at least one number"),
    ("convs2s", {"extra_layers": ((0, 3),)}, r"extra_layers is \(\(0, 3\),\); at least 1"),
    ("neural_gpu", {"rows": 0}, "rows is 0; at least 1"),
    ("online_alignment", {"emission_bias": 1e9}, "emission_bias is 1000000000.0; a number from -30 to 30"),
    ("ctc", {"layers": 0}, "layers is 0; at least 1"),
    ("ctc", {"subsampling_layers": 12}, "subsampling_layers is 12; a number from 0 to 6"),
    ("attention_asr", {"conv_width": 0}, "conv_width is 0; at least 1"),
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
    for name, (module, _) in EVERY.items():
        cls = import_module(module).Config
        needed = {field.name: 9 for field in fields(cls) if field.name in ("vocab", "state_dim", "action_dim")}
        yield name, "", cls(**needed)
    for name, (module, _) in TASKS.items():
        yield name, "task.", import_module(module).Config()
    yield "train", "train.", Train()
    yield "reinforce", "task.reinforce.", Reinforce()


@pytest.mark.parametrize(
    ("name", "group", "config"), list(configs()), ids=lambda value: value if type(value) is str else ""
)
def test_no_number_of_any_config_is_left_out(name, group, config):
    validate(config, group)
    for field in fields(config):
        kind = str(field.type)
        if kind.startswith(("int", "float", "tuple[int", "tuple[float")) and field.name != "seed":
            wrong = math.nan if "float" in kind else -1
            wrong = (wrong,) if kind.startswith("tuple") else wrong
            with pytest.raises(BadInput, match=rf"^{group}{field.name} is "):
                validate(replace(config, **{field.name: wrong}), group)


@pytest.mark.parametrize(
    ("name", "setting", "said"),
    [
        ("gru_cmudict_cpu", "model.width=-5", "model.width is -5; at least 1"),
        ("gru_cmudict_cpu", "task.label_smoothing=2", r"task.label_smoothing is 2\.0; it is a share"),
        ("gru_cmudict_cpu", "train.steps=-3", "train.steps is -3; at least 1"),
        ("gru_cmudict_cpu", "train.betas=(0.9, 1)", r"train.betas is \(0\.9, 1\.0\); it is a share"),
        (
            "gru_cmudict_cpu",
            "train.min_learning_rate_ratio=2",
            r"train.min_learning_rate_ratio is 2\.0; a number from 0 to 1",
        ),
        (
            "online_attention_cmudict",
            "task.reinforce.entropy_steps=-1",
            "task.reinforce.entropy_steps is -1; at least 0",
        ),
        ("vit_cifar10", "task.mixup=1e9", "task.mixup is 1000000000.0; a number from 0 to 100"),
        ("vit_cifar10", "data.val_fraction=1", r"data.val_fraction=1\.0: a share, more than 0 and less than 1"),
        ("vit_cifar10", "data.train_fraction=0", r"data.train_fraction=0\.0: a share, more than 0 and at most 1"),
    ],
)
def test_settings_of_a_recipe(name, setting, said):
    with pytest.raises(BadInput, match=said):
        override_recipe(load_recipe(name), [setting])
