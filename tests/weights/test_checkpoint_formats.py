"""What every format of another library represents, and what it refuses to write."""

import dataclasses
from importlib import import_module

import pytest

from regard.core.errors import Unsupported
from regard.weights import TABLES

# Fields that a format needs, where they are not the defaults.
NEEDED = {
    "hf_marian": {"positions": "sinusoidal(layout='halves')", "head_bias": True},
    "google_vit": {"feedforward": "gelu_tanh"},
    "vit_pytorch": {"stem": "normed", "eps": 1e-5},
    "hf_deit": {"num_prefix_tokens": 2},
    "timm_deit": {"num_prefix_tokens": 2},
    "timm_vit_hybrid": {"stem": "hybrid"},
    "torchvision_mvit": {"num_frames": 16, "class_token": True, "residual_pooling": "patches"},
}
WITHOUT_ATTENTION = {"efficientnet_lite", "timm_resnet"}


def config(name, **fields):
    """The default Config of a format's model, with what the format needs."""
    cls = import_module(TABLES[name][0]).Config
    required = {field.name: 100 for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    return cls(**required | NEEDED.get(name, {}) | fields)


@pytest.mark.parametrize("name", [name for name in TABLES if name not in WITHOUT_ATTENTION])
def test_arguments_of_the_mechanism_are_not_dropped(name):
    table = import_module(TABLES[name][0]).table
    for spec in ("softmax", "softmax(backend='eager')"):  # a backend computes the same
        assert table(config(name, attention=spec))
    for spec in ("softmax(scale=0.5)", "softmax(0.1)", "sparsemax"):
        with pytest.raises(Unsupported, match="needs attention='softmax', got"):
            table(config(name, attention=spec))
