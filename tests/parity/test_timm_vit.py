"""timm's ViT and DeiT and ours, from the same weights: values, gradients, maps, features, other sizes, folders."""

import json

import pytest
import torch

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import pair as size_pair
from regard.models.deit import Config as DeiTConfig
from regard.models.deit import DeiT
from regard.models.vit import Config, ViT
from regard.weights.table import import_state_dict
from regard.weights.timm import deit as timm_deit
from regard.weights.timm import vit as timm_vit

from .harness import round_trip, shaken
from .image_models import gradients_agree, same

timm = pytest.importorskip("timm")

SMALL = {"img_size": 24, "patch_size": 6, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 5}
KINDS = {
    "token": {},
    "mean, then norm": {"global_pool": "avg"},
    "norm, then mean": {"global_pool": "avg", "fc_norm": False, "class_token": False},
    "layer scale": {"init_values": 0.1},
    "registers without positions": {"reg_tokens": 3, "no_embed_class": True},
    "oblong images of one channel, oblong patches": {"img_size": (24, 36), "patch_size": (6, 4), "in_chans": 1},
    "wide feed-forward": {"mlp_ratio": 2.5, "act_layer": "gelu_tanh"},
    "no head": {"num_classes": 0},
}


def peer(name="vit_base_patch16_224", **settings):
    return shaken(timm.create_model(name, **SMALL | {"dynamic_img_size": True} | settings))


def pair(name="vit_base_patch16_224", **settings):
    theirs = peer(name, **settings)
    arguments = SMALL | settings
    said = {"architecture": name, "model_args": arguments, "global_pool": settings.get("global_pool", "token")}
    state = theirs.state_dict()
    if "dist_token" in state:
        config = DeiTConfig(**timm_vit.import_fields(said, state))
        ours, rows = DeiT(config).double().eval(), timm_deit.table(config)
    else:
        config = timm_vit.import_config(said, state)
        ours, rows = ViT(config).double().eval(), timm_vit.table(config)
    import_state_dict(rows, state, ours)
    return theirs, ours, rows


def images(config, *size):
    size = size or (
        config.image_size if isinstance(config.image_size, tuple) else (config.image_size, config.image_size)
    )
    return torch.randn(2, config.channels, *size, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_timm(kind):
    theirs, ours, _ = pair(**KINDS[kind])
    x = images(ours.config)
    with torch.no_grad():
        same(ours(x), theirs(x))
        same(ours.pooled(x), theirs.forward_head(theirs.forward_features(x), pre_logits=True))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_all_parameters_equal_those_of_timm(kind):
    theirs, ours, rows = pair(**KINDS[kind])
    x = images(ours.config)
    gradients_agree(theirs, theirs(x), ours, ours(x), rows)


@pytest.mark.parametrize("size", [(36, 36), (12, 12), (48, 18), (6, 30)], ids=str)
@pytest.mark.parametrize("kind", ["token", "registers without positions", "norm, then mean"])
def test_images_of_another_size_or_shape_equal_timm(kind, size):
    theirs, ours, _ = pair(**KINDS[kind])
    x = images(ours.config, *size)
    with torch.no_grad():  # timm draws positions in float32, whatever they are stored in
        same(ours(x), theirs(x), 1e-5)


def test_positions_of_another_size_get_the_gradients_of_timm():
    theirs, ours, _ = pair()
    theirs, ours = theirs.float(), ours.float()
    x = images(ours.config, 48, 18).float()
    pull = torch.randn(2, 5)
    (theirs(x) * pull).sum().backward()
    (ours(x) * pull).sum().backward()
    torch.testing.assert_close(ours.positions.table.grad, theirs.pos_embed.grad[0], rtol=1e-4, atol=1e-4)


def test_images_that_patches_do_not_divide_are_padded_like_timm():
    theirs, ours, _ = pair(dynamic_img_pad=True)
    x = images(ours.config, 23, 40)
    with torch.no_grad():
        same(ours(x), theirs(x), 1e-5)


def test_maps_equal_those_of_timm():
    theirs, ours, _ = pair()
    x, maps = images(ours.config), []
    for block in theirs.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda module, args, out: maps.append(out))
    with torch.no_grad(), watch(ours) as seen:
        ours(x)
        theirs(x)
    assert list(seen) == [f"encoder.blocks.{n}.mix" for n in range(3)]
    for trace, expected in zip(seen.values(), maps, strict=True):
        same(trace.weights, expected)


def test_grid_of_tokens_equals_timm():
    theirs, ours, _ = pair(img_size=(24, 30))
    x = images(ours.config)
    with torch.no_grad():
        same(ours.grid(x).flatten(1, 2), theirs.forward_features(x)[:, 1:])
        same(
            ours.encoder.intermediate_layers(ours.sequence(ours.stem(x)), [2])[0],
            theirs.blocks[:2](theirs._pos_embed(theirs.patch_embed(x))),
        )


@pytest.mark.parametrize("size", [(24, 24), (36, 18)], ids=str)
def test_both_heads_of_deit_equal_timm(size):
    theirs, ours, _ = pair("deit_base_distilled_patch16_224")
    x = images(ours.config, *size)
    with torch.no_grad():
        same(ours(x), theirs(x), 1e-5)
        same(ours.pooled(x), theirs.forward_head(theirs.forward_features(x), pre_logits=True), 1e-5)
    theirs.set_distilled_training(True)
    theirs.train()
    for mine, wanted in zip(ours.logits_per_head(x), theirs(x), strict=True):
        same(mine, wanted, 1e-5)


def test_gradients_of_deit_equal_those_of_timm():
    theirs, ours, rows = pair("deit_base_distilled_patch16_224")
    theirs.set_distilled_training(True)
    theirs.train()
    x = images(ours.config)
    gradients_agree(theirs, torch.cat(theirs(x), 1), ours, torch.cat(ours.logits_per_head(x), 1), rows)


@pytest.mark.parametrize("kind", [*KINDS, "deit"])
def test_import_then_export_is_exact(kind):
    theirs, ours, rows = pair(**KINDS[kind]) if kind in KINDS else pair("deit_base_distilled_patch16_224")
    round_trip(theirs.state_dict(), rows, ours)


@pytest.mark.parametrize("kind", [*KINDS, "deit"])
def test_timm_loads_saved_folders(tmp_path, kind):
    _, ours, _ = pair(**KINDS[kind]) if kind in KINDS else pair("deit_base_distilled_patch16_224")
    module = timm_vit if kind in KINDS else timm_deit
    module.save(tmp_path / "mine", ours.float())
    theirs = timm.create_model(f"local-dir:{tmp_path / 'mine'}", pretrained=True).eval()
    x = images(ours.config).float()
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x), rtol=1e-4, atol=1e-4)
    found, shown = module.load(tmp_path / "mine")
    assert type(found) is type(ours)
    assert shown["preprocess"]["size"] == size_pair(ours.config.image_size)
    assert shown["preprocess"]["channels"] == ours.config.channels
    with torch.no_grad():
        assert torch.equal(found(x), ours(x))


def saved(folder, name, **settings):
    """A folder that timm writes."""
    from timm.models._hub import save_for_hf

    theirs = peer(name, **settings).float()
    said = {"label_names": ["a", "b", "c", "d", "e"]}
    save_for_hf(theirs, folder, model_config=said, model_args=SMALL | settings, safe_serialization=True)
    return theirs


@pytest.mark.parametrize(("name", "settings"), [
    ("vit_tiny_patch16_224", {}), ("deit_tiny_patch16_224", {}), ("deit_tiny_distilled_patch16_224", {}),
    ("deit3_small_patch16_224", {}), ("vit_small_patch14_dinov2", {}), ("vit_small_patch14_reg4_dinov2", {}),
    ("vit_base_patch16_gap_224", {}), ("vit_medium_patch16_gap_256", {}),
], ids=str)  # fmt: skip
def test_folders_of_timm_load(tmp_path, name, settings):
    theirs = saved(tmp_path, name, **settings)
    classify = regard.load(tmp_path)
    assert classify.labels == ["a", "b", "c", "d", "e"]
    assert classify.preprocess.mean == tuple(theirs.pretrained_cfg["mean"])
    assert classify.preprocess.crop == theirs.pretrained_cfg["crop_pct"]
    x = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        torch.testing.assert_close(classify.model(x), theirs(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "said"), [
    ("vit_base_patch16_rpn_224", "vit_base_patch16_rpn_224"), ("vit_giant_patch14_dinov2", "dinov2"),
    ("vit_base_patch16_clip_quickgelu_224", "quickgelu"),
])  # fmt: skip
def test_unsupported_architectures_raise(name, said):
    with pytest.raises(Unsupported, match=said):
        timm_vit.import_config({"architecture": name}, peer().state_dict())


def test_unsupported_checkpoints_raise(tmp_path):
    state = peer().state_dict()
    with pytest.raises(Unsupported, match="qk_norm=True"):
        timm_vit.import_config({"architecture": "vit_base_patch16_224", "model_args": {"qk_norm": True}}, state)
    with pytest.raises(Unsupported, match="'map'"):
        timm_vit.import_config(
            {"architecture": "vit_base_patch16_224", "model_args": SMALL | {"global_pool": "map"}}, state
        )
    with pytest.raises(BadInput, match="17 rows"):
        timm_vit.import_config({"architecture": "vit_base_patch16_224", "model_args": SMALL | {"img_size": 30}}, state)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "convnext_tiny"}))
    with pytest.raises(BadInput, match="convnext_tiny"):
        regard.load(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"stem": "normed"},
        {"eps": 1e-5},
        {"representation_size": 8},
        {"feedforward": "swiglu"},
        {"positions": "learned(prefix=3)"},
        {"image_size": 40},  # timm would leave out the last eight pixels
    ],
    ids=str,
)
def test_models_that_the_format_cannot_represent_raise(settings):
    (name,) = settings
    with pytest.raises(Unsupported, match=f"timm's ViT needs {name}"):
        timm_vit.table(Config(**settings))


@pytest.mark.parametrize("settings", [{"feedforward": "swiglu"}, {"positions": "learned(prefix=0)"}], ids=str)
def test_deits_that_the_format_cannot_represent_raise(settings):
    with pytest.raises(Unsupported, match=next(iter(settings))):
        timm_deit.export_config(DeiTConfig(**settings))
