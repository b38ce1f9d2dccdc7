"""vit-pytorch's CCT and ours, from the same weights. Runs where vit-pytorch is installed; its answers are kept, too."""

import pytest
import torch

from regard.core.errors import Unsupported
from regard.models.cct import CCT, SIZES, Config
from regard.weights.other import vit_pytorch_cct
from regard.weights.table import import_state_dict

from .harness import round_trip, shaken
from .image_models import gradients_agree, same

KINDS = {
    "3x1": {},
    "3x2": {"convolutions": 2},
    "7x2": {"kernel": 7, "convolutions": 2, "image_size": 40},
    "gray": {"channels": 1},
    "not square": {"image_size": (20, 28)},
}


def pair(**settings):
    theirs = pytest.importorskip("vit_pytorch.cct")
    config = Config(
        **{
            "num_classes": 5,
            "image_size": 20,
            "kernel": 3,
            "convolutions": 1,
            "width": 24,
            "heads": 3,
            "layers": 2,
            "mlp_ratio": 2.0,
        }
        | settings
    )
    stride, around = max(1, config.kernel // 2 - 1), max(1, config.kernel // 2)
    made = theirs.CCT(
        img_size=config.image_size,
        embedding_dim=24,
        n_input_channels=config.channels,
        n_conv_layers=config.convolutions,
        kernel_size=config.kernel,
        stride=stride,
        padding=around,
        num_layers=2,
        num_heads=3,
        mlp_ratio=2,
        num_classes=5,
        positional_embedding="learnable",
    )
    made = shaken(made)
    ours = CCT(config).double().eval()
    import_state_dict(vit_pytorch_cct.table(config), made.state_dict(), ours)
    return made, ours


def images(config):
    size = config.image_size if isinstance(config.image_size, tuple) else (config.image_size,) * 2
    return torch.randn(3, config.channels, *size, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_vit_pytorch(kind):
    theirs, ours = pair(**KINDS[kind])
    x = images(ours.config)
    with torch.no_grad():
        expected = theirs(x)
        same(ours(x), expected)
    assert expected.std() > 0.1


def test_gradients_of_all_parameters_equal_those_of_vit_pytorch():
    theirs, ours = pair(convolutions=2)
    x = images(ours.config)
    gradients_agree(theirs, theirs(x), ours, ours(x), vit_pytorch_cct.table(ours.config))


@pytest.mark.parametrize("kind", KINDS)
def test_import_then_export_is_exact(kind):
    theirs, ours = pair(**KINDS[kind])
    round_trip(theirs.state_dict(), vit_pytorch_cct.table(ours.config), ours)


@pytest.mark.parametrize("size", ["7-3x1", "14-7x2"])
def test_sizes_have_as_many_parameters_as_the_peers(size):
    theirs, config = pytest.importorskip("vit_pytorch.cct"), Config(**SIZES[size])
    made = getattr(theirs, f"cct_{config.layers}")(
        img_size=config.image_size, n_conv_layers=config.convolutions, kernel_size=config.kernel,
        num_classes=config.num_classes, positional_embedding="learnable",
    )  # fmt: skip
    counted = sum(p.numel() for p in CCT(config).parameters())
    assert counted == sum(p.numel() for p in made.parameters())


def test_models_that_the_format_cannot_represent_raise():
    with pytest.raises(Unsupported, match="needs a head"):
        vit_pytorch_cct.table(Config(num_classes=0))
    with pytest.raises(Unsupported, match="needs attention='softmax'"):
        vit_pytorch_cct.table(Config(attention=["softmax", "linear"]))
