"""timm's MViTv2 and ours, from the same weights: values, features, gradients, maps; sizes with and without a token."""

import pytest
import torch

import regard
from regard.core.errors import BadInput, Unsupported
from regard.models import build
from regard.models.mvit import Config, MViT
from regard.weights.table import export_state_dict, import_state_dict
from regard.weights.timm import mvitv2 as timm_mvitv2
from tests.parity.image_models import gradients_agree, maps_agree

timm = pytest.importorskip("timm")
mvitv2 = pytest.importorskip("timm.models.mvitv2")

SMALL = {"width": 6, "heads": 1, "layers": (1, 2, 2, 1), "image_size": 64, "num_classes": 5}
KINDS = {
    "plain": {},
    "two heads, wider in the feed-forward": {"heads": 2, "widen_in": "feedforward"},
    "class token": {"class_token": True},
    "keys as fine as queries": {"kv_stride": 1},
    "four channels": {"channels": 4},
}


def peer(config, image=64):
    cfg = mvitv2.MultiScaleVitCfg(
        depths=config.layers,
        embed_dim=config.width,
        num_heads=config.heads,
        use_cls_token=config.class_token,
        expand_attn=config.widen_in == "attention",
        stride_kv_adaptive=(config.kv_stride, config.kv_stride),
    )
    theirs = mvitv2.MultiScaleVit(cfg, img_size=image, in_chans=config.channels, num_classes=config.num_classes)
    theirs = theirs.double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return theirs


def pair(**settings):
    ours = MViT(Config(**SMALL | settings)).double().eval()
    theirs = peer(ours.config)
    import_state_dict(timm_mvitv2.table(ours.config), theirs.state_dict(), ours)
    return theirs, ours


def images(ours, side=64):
    return torch.randn(2, ours.config.channels, side, side, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_features_equal_those_of_timm(kind):
    theirs, ours = pair(**KINDS[kind])
    given = images(ours)
    with torch.no_grad():
        torch.testing.assert_close(ours(given), theirs(given), rtol=1e-10, atol=1e-10)
        theirs_features = theirs.forward_intermediates(given, intermediates_only=True)
        for mine, wanted in zip(ours.features(given), theirs_features, strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)
        whole = theirs.forward_features(given)
        torch.testing.assert_close(
            ours.grid(given).flatten(1, 2), whole[:, ours.num_prefix_tokens :], rtol=1e-10, atol=1e-10
        )
        torch.testing.assert_close(ours.pooled(given), theirs.forward_head(whole, pre_logits=True))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_all_parameters_equal_those_of_timm(kind):
    theirs, ours = pair(**KINDS[kind])
    given = images(ours)
    gradients_agree(theirs, theirs(given), ours, ours(given), timm_mvitv2.table(ours.config))


@pytest.mark.parametrize("kind", KINDS)
def test_maps_equal_those_of_timm(kind, monkeypatch):
    theirs, ours = pair(**KINDS[kind])
    maps_agree(theirs, ours, images(ours), monkeypatch)


@pytest.mark.parametrize("side", [32, 96, 128])
def test_interpolated_tables_equal_timm(side):
    """timm makes another model for another size, and resizes the tables of positions when it loads the weights."""
    theirs, ours = pair()
    other = peer(ours.config, side)
    other.load_state_dict(mvitv2.checkpoint_filter_fn(theirs.state_dict(), other))
    with torch.no_grad():
        given = images(ours, side)
        torch.testing.assert_close(ours(given), other(given), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_import_then_export_is_exact(kind):
    theirs, ours = pair(**KINDS[kind])
    state = export_state_dict(timm_mvitv2.table(ours.config), ours)
    assert state.keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        assert torch.equal(state[name], value), name


TOKEN = [("s-token", "small_cls"), ("b-token", "base_cls"), ("l-token", "large_cls"), ("h-token", "huge_cls")]


@pytest.mark.long
@pytest.mark.parametrize(("size", "name"), [("t", "tiny"), ("s", "small"), ("b", "base"), ("l", "large"), *TOKEN])
def test_published_sizes_have_the_tensors_of_timm(size, name):
    with torch.device("meta"):
        theirs, ours = timm.create_model(f"mvitv2_{name}", num_classes=1000), build("mvit", size=size)
    wanted = {n: v.shape for n, v in theirs.state_dict().items()}
    assert {n: v.shape for n, v in export_state_dict(timm_mvitv2.table(ours.config), ours).items()} == wanted


def test_the_published_tiny_model_equals_timm_in_float32():
    theirs, ours = timm.create_model("mvitv2_tiny").eval(), build("mvit", size="t").eval()
    import_state_dict(timm_mvitv2.table(ours.config), theirs.state_dict(), ours)
    given = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(given), theirs(given), rtol=1e-4, atol=1e-5)


def test_folders_are_exchanged_with_timm(tmp_path):
    from timm.models._hub import save_for_hf

    ours = build("mvit", size="t", image_size=64, num_classes=5, drop_path=0.1).eval()
    timm_mvitv2.save(tmp_path / "ours", ours)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True).eval()
    given = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(theirs(given), ours(given), rtol=1e-4, atol=1e-5)
    back, _ = timm_mvitv2.load(tmp_path / "ours")
    assert back.config == ours.config
    said = {"label_names": ["a", "b", "c", "d", "e"]}
    save_for_hf(theirs, tmp_path / "theirs", said, model_args={"img_size": 64}, safe_serialization=True)
    classify = regard.load(tmp_path / "theirs")
    assert (classify.labels, classify.preprocess.size) == (["a", "b", "c", "d", "e"], (64, 64))
    with torch.no_grad():
        torch.testing.assert_close(classify.model(given), ours(given), rtol=1e-4, atol=1e-5)


def test_folders_of_other_kinds_raise():
    with pytest.raises(Unsupported, match="only the published sizes"):
        timm_mvitv2.export_config(Config(**SMALL))
    with pytest.raises(Unsupported, match="square images"):
        timm_mvitv2.export_config(Config(image_size=(64, 96)))
    state = {"patch_embed.proj.weight": torch.zeros(96, 3, 7, 7)}
    with pytest.raises(Unsupported, match="'mvit_unheard' is not supported"):
        timm_mvitv2.import_config({"architecture": "mvit_unheard"}, state)
    with pytest.raises(Unsupported, match="global_pool='avg'"):
        timm_mvitv2.import_config({"architecture": "mvitv2_base_cls", "model_args": {"global_pool": "avg"}}, state)
    with pytest.raises(BadInput, match="patch_embed is missing"):
        timm_mvitv2.import_config({"architecture": "mvitv2_tiny"}, {})


def test_models_that_timm_cannot_represent_raise():
    for settings in ({"num_frames": 4}, {"positions": "added"}, {"residual_pooling": "none"}, {"pooling": "mean"}):
        with pytest.raises(Unsupported, match=next(iter(settings))):
            timm_mvitv2.table(Config(**SMALL | settings))
    theirs, ours = pair()
    with pytest.raises(BadInput, match="do not fit"):
        import_state_dict(
            timm_mvitv2.table(ours.config), theirs.state_dict(), MViT(Config(**SMALL | {"layers": (1, 1, 2, 1)}))
        )
