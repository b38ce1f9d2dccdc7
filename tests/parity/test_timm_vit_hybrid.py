"""timm's hybrid ViTs and ours, a ResNet before a ViT, from the same weights: values, gradients, folders."""

import pytest
import torch

from regard.core.errors import Unsupported
from regard.models.vit import SIZES, Config, ViT
from regard.weights.table import import_state_dict
from regard.weights.timm import vit_hybrid as timm_hybrid

from .harness import round_trip, shaken
from .image_models import gradients_agree, same, there_and_back

timm = pytest.importorskip("timm")
from timm.layers import HybridEmbed  # noqa: E402
from timm.models.vision_transformer import VisionTransformer  # noqa: E402
from timm.models.vision_transformer_hybrid import _resnetv2  # noqa: E402

KINDS = {
    "two stages": {"layers": (1, 2)},
    "patches of the grid": {"layers": (1,), "patch_size": 2},
    "no stages": {"layers": (), "patch_size": 2},
    "gray": {"layers": (1, 1), "in_chans": 1},
    "no head": {"layers": (1, 1), "num_classes": 0},
}


def pair(layers=(1, 2), **settings):
    backbone = _resnetv2(layers, in_chans=settings.get("in_chans", 3))
    settings = {
        "img_size": 48,
        "patch_size": 1,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 3,
        "num_classes": 5,
    } | settings

    def embed(**given):
        return HybridEmbed(backbone=backbone, **given)

    theirs = shaken(VisionTransformer(embed_layer=embed, dynamic_img_size=True, **settings), by=0.1)
    ours = ViT(
        Config(
            num_classes=settings["num_classes"], image_size=48, channels=settings.get("in_chans", 3),
            patch_size=settings["patch_size"], width=24, heads=3, layers=2, stem=f"hybrid(layers={layers})",
        )
    )  # fmt: skip
    ours = ours.double().eval()
    import_state_dict(timm_hybrid.table(ours.config), theirs.state_dict(), ours)
    return theirs, ours


def images(ours, *size):
    return torch.randn(3, ours.config.channels, *size, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_timm_at_their_size(kind):
    theirs, ours = pair(**KINDS[kind])
    x = images(ours, 48, 48)
    with torch.no_grad():
        expected = theirs(x)
        same(ours(x), expected)
    assert expected.std() > 0.1


def test_the_stem_equals_timm_for_odd_sizes():
    theirs, ours = pair((1, 2))
    for size in ((48, 48), (37, 51), (40, 30), (33, 32)):
        x = images(ours, *size)
        with torch.no_grad():
            grid = theirs.patch_embed.backbone(x)
            expected = theirs.patch_embed.proj(grid).permute(0, 2, 3, 1)
            same(ours.stem(x), expected)
        assert expected.shape[1:3] == tuple(-(-side // ours.stem.stride[0]) for side in size)


def test_gradients_of_all_parameters_equal_those_of_timm():
    theirs, ours = pair((1, 1))
    x = images(ours, 48, 48)
    gradients_agree(theirs, theirs(x), ours, ours(x), timm_hybrid.table(ours.config))


@pytest.mark.parametrize("kind", KINDS)
def test_import_then_export_is_exact(kind):
    theirs, ours = pair(**KINDS[kind])
    round_trip(theirs.state_dict(), timm_hybrid.table(ours.config), ours)


# Parameters of timm's models of these names.
NAMES = {"r26-s32": "vit_small_r26_s32_224", "r26-b32": "vit_base_r26_s32_224", "r50-b16": "vit_base_r50_s16_224",
    "r50-l32": "vit_large_r50_s32_224", "r-ti32": "vit_tiny_r_s16_p8_224"}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("size", NAMES)
def test_sizes_have_as_many_parameters_as_timm(size):
    with torch.device("meta"):
        ours = ViT(Config(**SIZES[size]))
    if size == "r50-l32":
        assert sum(p.numel() for p in ours.parameters()) == pytest.approx(328.99e6, rel=1e-4)
        return  # theirs takes seconds
    theirs = timm.create_model(NAMES[size], num_classes=1000)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_folder_round_trip(tmp_path):
    settings = {"embed_dim": 24, "depth": 1, "num_heads": 3, "num_classes": 5, "img_size": 64}
    theirs = timm.create_model("vit_small_r26_s32_224", **settings).eval()
    model, shown = there_and_back(theirs, settings, timm_hybrid, torch.randn(2, 3, 64, 64), tmp_path)
    assert model.config.stem == "hybrid(layers=(2, 2, 2, 2))"
    assert len(shown["labels"]) == 5


def test_models_that_the_format_cannot_represent_raise():
    for stem in ("patches", "hybrid(layers=(1, 2), base=32)", torch.nn.Identity()):
        with pytest.raises(Unsupported, match="hybrid ViT needs stem"):
            timm_hybrid.table(Config(stem=stem))
    with pytest.raises(Unsupported, match="no hybrid ViT with stages"):
        timm_hybrid.export_config(Config(patch_size=1, stem="hybrid(layers=(1, 2))"))
    for field, value in (("num_prefix_tokens", 5), ("num_prefix_tokens", 2), ("layer_scale", 0.1)):
        with pytest.raises(Unsupported, match=f"hybrid ViT needs {field}"):
            timm_hybrid.export_config(Config(stem="hybrid", patch_size=1, **{field: value}))
    with pytest.raises(Unsupported, match="is not supported"):
        timm_hybrid.import_config({"architecture": "vit_base_patch16_224"}, {})
