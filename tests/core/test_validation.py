"""Numbers out of range raise one line of `BadInput` before anything is built."""

import math
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Annotated, Literal

import pytest
import torch

import regard
from regard.core.errors import BadInput, RegardError
from regard.core.validation import Range, argument_ranges, validate
from regard.cost import meta_model
from regard.models import MODELS as EVERY
from regard.tasks import TASKS
from regard.tasks.reinforce import Reinforce
from regard.training.recipe import Train, load_recipe, override_recipe

MODELS = ("vit", "deit", "swin", "swinv2", "mvit", "cct", "resnet")
NOT_ALL = {"patch_size": ("cct", "resnet"), "heads": ("resnet",), "attention_dropout": ("mvit", "resnet")}
WRONG = [
    ("drop_path", -0.1, "at least 0 and less than 1"),
    ("drop_path", 1.0, "at least 0 and less than 1"),
    ("dropout", 2.0, "at least 0 and less than 1"),
    ("attention_dropout", -1.0, "at least 0 and less than 1"),
    ("image_size", 0, "at least 1"),
    ("image_size", (32, 0), "at least 1"),
    ("patch_size", 0, "at least 1"),
    ("patch_size", -4, "at least 1"),
    ("channels", 0, "at least 1"),
    ("width", 0, "at least 1"),
    ("num_classes", -1, "at least 0"),
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("field", "value", "expected"), WRONG)
def test_numbers_that_no_image_model_accepts(name, field, value, expected):
    if name in NOT_ALL.get(field, ()):
        pytest.skip("it has no such field")
    with pytest.raises(BadInput, match=rf"{field} must be {expected}, got "):
        regard.build(name, size="tiny", **{field: value})


OWN = [
    ("vit", {"layers": -1}, "layers must be at least 0, got -1"),
    ("vit", {"num_prefix_tokens": -1}, "num_prefix_tokens must be at least 0, got -1"),
    ("vit", {"ffn": 0}, "ffn must be at least 1, got 0"),
    ("vit", {"heads": 5}, "width 96 is not divisible by 5 heads"),
    ("swin", {"window_size": 0}, "window_size must be at least 1, got 0"),
    ("swin", {"window_size": -2}, "window_size must be at least 1, got -2"),
    ("swin", {"layers": (2, 0, 2)}, r"layers must be at least 1, got \(2, 0, 2\)"),
    ("swin", {"mlp_ratio": 0.0}, "mlp_ratio must be above 0, got 0.0"),
    ("swinv2", {"window_size": 0}, "window_size must be at least 1, got 0"),
    ("swinv2", {"pretrained_window_sizes": (4, 4)}, "must have one value for each stage"),
    ("mvit", {"layers": ()}, "layers must have at least one number"),
    ("mvit", {"num_frames": 0}, "num_frames must be at least 1, got 0"),
    ("mvit", {"kv_stride": 0}, "kv_stride must be at least 1, got 0"),
    ("cct", {"mlp_ratio": -1.0}, "mlp_ratio must be above 0, got -1.0"),
    ("cct", {"convolutions": 0}, "convolutions must be at least 1, got 0"),
    ("cct", {"kernel": 0}, "kernel must be at least 1, got 0"),
    ("resnet", {"layers": (0,)}, "at least 1"),
]


@pytest.mark.parametrize(("name", "settings", "message"), OWN)
def test_numbers_of_one_model(name, settings, message):
    with pytest.raises(RegardError, match=message):
        regard.build(name, size="tiny", **settings)


@pytest.mark.parametrize("name", MODELS)
def test_images_without_a_pixel_raise_and_those_of_one_pixel_work(name):
    model = regard.build(name, size="tiny").eval()
    with pytest.raises(BadInput, match="0 x 32 have no pixel"):
        model(torch.zeros(1, 3, 0, 32))
    with torch.no_grad():
        assert torch.isfinite(model(torch.randn(1, 3, 1, 1))).all()


def test_cost_of_an_invalid_model_raises():
    with pytest.raises(BadInput, match=r"drop_path must be at least 0 and less than 1, got -1\.0"):
        meta_model.build(meta_model.resolve_config("vit", "b16", ["drop_path=-1"]))
    with pytest.raises(BadInput, match="patch_size must be at least 1, got 0"):
        meta_model.build(meta_model.resolve_config("vit", "b16", ["patch_size=0"]))


SEQUENCES = [
    ("seq2seq", {"width": -1}, "width must be at least 1, got -1"),
    ("seq2seq", {"hidden": 0}, "hidden must be at least 1, got 0"),
    ("rnnsearch", {"layers": -1}, "layers must be at least 1, got -1"),
    ("rnnsearch", {"pad": 50}, "pad must be at least 0 and less than 50, got 50"),
    ("luong", {"dropout": 7.0}, r"dropout must be at least 0 and less than 1, got 7\.0"),
    ("bytenet", {"length_ratio": -1.0}, r"length_ratio must be above 0, got -1\.0"),
    ("bytenet", {"length_offset": -100.0}, r"length_offset must be at least 0, got -100\.0"),
    ("bytenet", {"dilations": ()}, "dilations must have at least one number"),
    ("convs2s", {"extra_layers": ((0, 3),)}, r"extra_layers must be at least 1, got \(\(0, 3\),\)"),
    ("neural_gpu", {"rows": 0}, "rows must be at least 1, got 0"),
    ("online_alignment", {"emission_bias": 1e9}, "emission_bias must be from -30 to 30, got 1000000000.0"),
    ("ctc", {"layers": 0}, "layers must be at least 1, got 0"),
    ("ctc", {"subsampling_layers": 12}, "subsampling_layers must be from 0 to 6, got 12"),
    ("attention_asr", {"conv_width": 0}, "conv_width must be at least 1, got 0"),
    ("elmo", {"filters": ()}, "filters must have at least one number"),
    ("t5", {"activation_dropout": 1.0}, r"activation_dropout must be at least 0 and less than 1, got 1\.0"),
    ("bert", {"eps": 0.0}, r"eps must be above 0, got 0\.0"),
    ("word2vec", {"vocab": 0}, "vocab must be at least 1, got 0"),
    ("handwriting", {"vocab": -1}, "vocab must be at least 0, got -1"),
]


@pytest.mark.parametrize(("name", "settings", "message"), SEQUENCES)
def test_numbers_of_sequence_models(name, settings, message):
    with pytest.raises(BadInput, match=message):
        regard.build(name, **{"vocab": 50} | settings)


def configs():
    """Yield every Config with its defaults, and the prefix of its fields in messages."""
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
def test_every_number_of_every_config_is_checked(name, group, config):
    validate(config, group)
    for field in fields(config):
        kind = str(field.type)
        if kind.startswith(("int", "float", "tuple[int", "tuple[float")) and field.name != "seed":
            wrong = math.nan if "float" in kind else -1
            if kind.startswith("tuple"):
                wrong = (wrong,) * len(getattr(config, field.name) or (0,))
            with pytest.raises(BadInput, match=rf"^{group}{field.name} must be "):
                validate(replace(config, **{field.name: wrong}), group)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("gru_cmudict_cpu", "model.width=-5", "model.width must be at least 1, got -5"),
        (
            "gru_cmudict_cpu",
            "task.label_smoothing=2",
            r"task.label_smoothing must be at least 0 and less than 1, got 2\.0",
        ),
        ("gru_cmudict_cpu", "train.steps=-3", "train.steps must be at least 1, got -3"),
        (
            "gru_cmudict_cpu",
            "train.betas=(0.9, 1)",
            r"train.betas must be at least 0 and less than 1, got \(0\.9, 1\.0\)",
        ),
        (
            "gru_cmudict_cpu",
            "train.min_learning_rate_ratio=2",
            r"train.min_learning_rate_ratio must be from 0 to 1, got 2\.0",
        ),
        (
            "online_attention_cmudict",
            "task.reinforce.entropy_steps=-1",
            "task.reinforce.entropy_steps must be at least 0, got -1",
        ),
        ("vit_cifar10", "task.mixup=1e9", "task.mixup must be from 0 to 100, got 1000000000.0"),
        ("vit_cifar10", "data.val_fraction=1", r"data.val_fraction must be above 0 and less than 1, got 1\.0"),
        ("vit_cifar10", "data.train_fraction=0", r"data.train_fraction must be above 0 and at most 1, got 0\.0"),
    ],
)
def test_settings_of_a_recipe(name, setting, message):
    with pytest.raises(BadInput, match=message):
        override_recipe(load_recipe(name), [setting])


def test_ranges_of_constructor_arguments_stand_in_annotations():
    class Part:
        def __init__(self, ratio: Annotated[float | None, Range(above=0)] = 1.0, size: int = 3) -> None: ...

    assert argument_ranges(Part) == {"ratio": Range(above=0)}


@pytest.mark.parametrize(
    ("allowed", "inside", "outside", "words"),
    [
        (Range(low=1), (1, 5), (0, -1, math.inf), "at least 1"),
        (Range(above=0), (0.1,), (0.0, math.nan), "above 0"),
        (Range(low=0, below=1), (0.0, 0.5), (1.0, -0.1), "at least 0 and less than 1"),
        (Range(above=0, high=1), (1.0,), (0.0, 1.1), "above 0 and at most 1"),
        (Range(low=-3, high=3), (-3, 3), (4,), "from -3 to 3"),
        (Range(), (-1e9,), (math.nan, -math.inf), "a finite number"),
    ],
)
def test_ranges(allowed, inside, outside, words):
    assert all(x in allowed for x in inside)
    assert not any(x in allowed for x in outside)
    assert str(allowed) == words


def test_a_word_that_a_field_does_not_allow_is_refused_however_the_config_is_made():
    @dataclass(frozen=True)
    class Choice:
        pool: Literal["token", "mean"] = "token"
        more: "Literal['a'] | None" = None

    validate(Choice())
    validate(Choice("mean", "a"))
    with pytest.raises(BadInput, match="pool is 'cls'; choose one of 'token', 'mean'"):
        validate(Choice("cls"))
    with pytest.raises(BadInput, match="more is 'b'; choose one of 'a'"):
        validate(Choice(more="b"))


def test_an_integer_of_hundreds_of_digits_is_in_no_range_and_named_shortly():
    for allowed in (Range(), Range(low=0), Range(low=0, high=9999)):
        assert 10**400 not in allowed
        assert 3 in allowed
    with pytest.raises(BadInput) as refused:
        validate(Train(seed=10**400))
    assert len(str(refused.value)) < 200
