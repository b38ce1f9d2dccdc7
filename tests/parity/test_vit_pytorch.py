"""vit-pytorch's ViT and ours, from the same weights. Runs where vit-pytorch is installed; its answers are kept, too."""

import pytest
import torch

from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.models.vit import Config, ViT
from regard.weights.other import vit_pytorch
from regard.weights.table import export_state_dict, import_state_dict

from .harness import round_trip, shaken
from .image_models import gradients_agree, same

SMALL = {"image_size": 24, "patch_size": 6, "dim": 24, "depth": 2, "heads": 3, "dim_head": 8, "mlp_dim": 40,
    "num_classes": 5}  # fmt: skip


def pair(**settings):
    theirs = shaken(pytest.importorskip("vit_pytorch").ViT(**SMALL | settings))
    image = (SMALL | settings)["image_size"]
    config = vit_pytorch.import_config(
        theirs.state_dict(), heads=3, channels=settings.get("channels", 3), image_size=image
    )
    ours = ViT(config).double().eval()
    import_state_dict(vit_pytorch.table(config), theirs.state_dict(), ours)
    return theirs, ours


@pytest.mark.parametrize("settings", [{}, {"pool": "mean"}, {"channels": 1}, {"image_size": (24, 36)}], ids=str)
class TestAgainstIt:
    def images(self, ours):
        size = ours.config.image_size if isinstance(ours.config.image_size, tuple) else (ours.config.image_size,) * 2
        return torch.randn(2, ours.config.channels, *size, dtype=torch.float64)

    def test_logits_and_gradients_equal_those_of_vit_pytorch(self, settings):
        theirs, ours = pair(**settings)
        x = self.images(ours)
        found, expected = ours(x), theirs(x)
        same(found, expected)
        rows = vit_pytorch.table(ours.config)
        ours.zero_grad()
        for block in ours.encoder.blocks:  # theirs have no bias there, so that its gradient has no place
            block.mix.project.qkv.bias.requires_grad_(False)
        gradients_agree(theirs, theirs(x), ours, ours(x), rows)

    def test_maps_equal_those_of_vit_pytorch(self, settings):
        theirs, ours = pair(**settings)
        maps = []
        for attention, _ in theirs.transformer.layers:
            attention.attend.register_forward_hook(lambda module, args, out: maps.append(out))
        x = self.images(ours)
        with torch.no_grad(), watch(ours) as seen:
            ours(x)
            theirs(x)
        for trace, expected in zip(seen.values(), maps, strict=True):
            same(trace.weights, expected)

    def test_import_then_export_is_exact(self, settings):
        theirs, ours = pair(**settings)
        round_trip(theirs.state_dict(), vit_pytorch.table(ours.config), ours)


def mine(**settings):
    config = Config(
        **{
            "num_classes": 5,
            "image_size": 24,
            "patch_size": 6,
            "width": 24,
            "heads": 3,
            "layers": 2,
            "ffn": 40,
            "stem": "normed",
            "eps": 1e-5,
        }
        | settings
    )
    return shaken(ViT(config))


def cleared(model):
    with torch.no_grad():
        for block in model.encoder.blocks:
            block.mix.project.qkv.bias.zero_()
    return model


def test_config_is_inferred_from_the_tensors():
    ours = cleared(mine())
    theirs = export_state_dict(vit_pytorch.table(ours.config), ours)
    assert vit_pytorch.import_config(theirs, heads=3) == ours.config
    old = theirs | {name: theirs[name][None] for name in ("cls_token", "pos_embedding")}
    assert vit_pytorch.import_config(old, heads=3) == ours.config
    again = ViT(ours.config).double()
    import_state_dict(vit_pytorch.table(ours.config), vit_pytorch.normalize_keys(old), again)
    assert torch.equal(again.prefix_tokens, ours.prefix_tokens)


def test_a_bias_of_q_k_and_v_raises():
    ours = mine()
    with pytest.raises(BadInput, match=r"qkv\.bias' has values"):
        export_state_dict(vit_pytorch.table(ours.config), ours)


def test_invalid_settings_raise():
    theirs = export_state_dict(vit_pytorch.table(mine().config), cleared(mine()))
    wide = theirs | {f"transformer.layers.{n}.0.to_qkv.weight": torch.zeros(192, 24) for n in range(2)}
    with pytest.raises(Unsupported, match="got 64"):
        vit_pytorch.import_config(wide, heads=1)
    with pytest.raises(BadInput, match="channels="):
        vit_pytorch.import_config(theirs, heads=3, channels=1)
    with pytest.raises(BadInput, match="not the tensors"):
        vit_pytorch.import_config({}, heads=3)
    with pytest.raises(Unsupported, match="vit-pytorch needs stem"):
        vit_pytorch.table(Config())
