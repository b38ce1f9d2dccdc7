"""The arrays of google-research's ViT, against their meaning written out with einsum, and against timm's reader."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import BadInput, Unsupported
from regard.models.vit import Config, ViT
from regard.weights.other import google_vit
from regard.weights.table import export_state_dict, import_state_dict

from .harness import shaken
from .image_models import same

SMALL = Config(num_classes=5, image_size=24, patch_size=6, width=24, heads=3, layers=2, ffn=40, feedforward="gelu_tanh")
KINDS = {
    "token": SMALL,
    "mean": Config(**vars(SMALL) | {"num_prefix_tokens": 0, "pool": "mean"}),
    "pre-training": Config(**vars(SMALL) | {"representation_size": 8}),
    "no head, one channel": Config(**vars(SMALL) | {"num_classes": 0, "channels": 1}),
}


def norm(arrays, name, x):
    return F.layer_norm(x, x.shape[-1:], arrays[f"{name}/scale"], arrays[f"{name}/bias"], 1e-6)


def dense(arrays, name, x):
    return x @ arrays[f"{name}/kernel"] + arrays[f"{name}/bias"]


def meaning(arrays, images, layers):
    """What flax makes of these arrays; images B Y X C, as there."""
    kernel = arrays["embedding/kernel"]
    p, q = kernel.shape[:2]
    patches = images.unfold(1, p, p).unfold(2, q, q)  # B y x C P P
    x = (torch.einsum("byxcpq,pqcw->byxw", patches, kernel) + arrays["embedding/bias"]).flatten(1, 2)
    if "cls" in arrays:
        x = torch.cat([arrays["cls"].expand(len(x), 1, -1), x], 1)
    x = x + arrays["Transformer/posembed_input/pos_embedding"]
    for layer in range(layers):
        block = f"Transformer/encoderblock_{layer}"
        y, mix = norm(arrays, f"{block}/LayerNorm_0", x), f"{block}/MultiHeadDotProductAttention_1"
        q, k, v = (
            torch.einsum("bnc,chd->bhnd", y, arrays[f"{mix}/{name}/kernel"]) + arrays[f"{mix}/{name}/bias"][:, None]
            for name in ("query", "key", "value")
        )
        heads = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        x = x + torch.einsum("bhnd,hdc->bnc", heads, arrays[f"{mix}/out/kernel"]) + arrays[f"{mix}/out/bias"]
        y = dense(arrays, f"{block}/MlpBlock_3/Dense_0", norm(arrays, f"{block}/LayerNorm_2", x))
        x = x + dense(arrays, f"{block}/MlpBlock_3/Dense_1", F.gelu(y, approximate="tanh"))
    x = norm(arrays, "Transformer/encoder_norm", x)
    x = x[:, 0] if "cls" in arrays else x.mean(1)
    x = torch.tanh(dense(arrays, "pre_logits", x)) if "pre_logits/kernel" in arrays else x
    return dense(arrays, "head", x) if "head/kernel" in arrays else x


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_equal_flax(kind):
    ours = shaken(ViT(KINDS[kind]))
    arrays = export_state_dict(google_vit.table(ours.config), ours)
    x = torch.randn(2, ours.config.channels, 24, 24, dtype=torch.float64)
    with torch.no_grad():
        same(ours(x), meaning(arrays, x.permute(0, 2, 3, 1), 2))


@pytest.mark.parametrize("kind", KINDS)
def test_file_round_trip_with_config(tmp_path, kind):
    ours = shaken(ViT(KINDS[kind])).float()
    google_vit.save(tmp_path / "vit.npz", ours)
    found = google_vit.load(tmp_path / "vit.npz")
    assert found.config == ours.config
    for name, value in ours.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


@pytest.mark.parametrize("kind", ["token"])
def test_timm_loads_saved_files(tmp_path, kind):
    timm = pytest.importorskip("timm")
    ours = shaken(ViT(KINDS[kind])).float()
    google_vit.save(tmp_path / "vit.npz", ours)
    settings = {"img_size": 24, "patch_size": 6, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    theirs = timm.create_model("vit_base_patch16_224", **settings, mlp_ratio=40 / 24, act_layer="gelu_tanh").eval()
    theirs.load_pretrained(str(tmp_path / "vit.npz"))
    x = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x), rtol=1e-4, atol=1e-4)


def test_arrays_have_the_published_names_and_shapes():
    ours = ViT(Config(image_size=32, layers=1, feedforward="gelu_tanh"))  # of ViT-B_16
    arrays = export_state_dict(google_vit.table(ours.config), ours)
    block = "Transformer/encoderblock_0"
    assert {name: tuple(value.shape) for name, value in arrays.items()} == {
        "cls": (1, 1, 768),
        "embedding/kernel": (16, 16, 3, 768),
        "embedding/bias": (768,),
        "Transformer/posembed_input/pos_embedding": (1, 5, 768),
        f"{block}/LayerNorm_0/scale": (768,),
        f"{block}/LayerNorm_0/bias": (768,),
        **{f"{block}/MultiHeadDotProductAttention_1/{n}/kernel": (768, 12, 64) for n in ("query", "key", "value")},
        **{f"{block}/MultiHeadDotProductAttention_1/{n}/bias": (12, 64) for n in ("query", "key", "value")},
        f"{block}/MultiHeadDotProductAttention_1/out/kernel": (12, 64, 768),
        f"{block}/MultiHeadDotProductAttention_1/out/bias": (768,),
        f"{block}/LayerNorm_2/scale": (768,),
        f"{block}/LayerNorm_2/bias": (768,),
        f"{block}/MlpBlock_3/Dense_0/kernel": (768, 3072),
        f"{block}/MlpBlock_3/Dense_0/bias": (3072,),
        f"{block}/MlpBlock_3/Dense_1/kernel": (3072, 768),
        f"{block}/MlpBlock_3/Dense_1/bias": (768,),
        "Transformer/encoder_norm/scale": (768,),
        "Transformer/encoder_norm/bias": (768,),
        "head/kernel": (768, 1000),
        "head/bias": (1000,),
    }


def test_other_files_raise(tmp_path):
    file = tmp_path / "x.npz"
    with pytest.raises(BadInput, match="there is no file"):
        google_vit.load(file)
    file.write_bytes(b"nonsense")
    with pytest.raises(BadInput, match=r"no \.npz file"):
        google_vit.load(file)
    np.savez(file, a=np.zeros(3))
    with pytest.raises(BadInput, match="not the arrays of a ViT"):
        google_vit.load(file)
    np.savez(file, a=np.array([{}], dtype=object))
    with pytest.raises(BadInput, match=r"no \.npz file"):
        google_vit.load(file)


def test_weights_of_another_model_raise_and_change_nothing():
    ours = ViT(SMALL)
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    arrays = export_state_dict(google_vit.table(ours.config), ViT(Config(**vars(SMALL) | {"layers": 3})))
    with pytest.raises(BadInput, match="encoderblock_2"):
        import_state_dict(google_vit.table(ours.config), arrays, ours)
    assert all(torch.equal(before[name], value) for name, value in ours.state_dict().items())


@pytest.mark.parametrize(
    "settings", [{"pool": "mean_norm"}, {"layer_scale": 1.0}, {"eps": 1e-5}, {"feedforward": "relu"}], ids=str
)
def test_models_that_the_format_cannot_represent_raise(settings):
    (name,) = settings
    with pytest.raises(Unsupported, match=name if name != "pool" else "prefix|pool"):
        google_vit.table(Config(**settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"image_size": (24, 36)}, "must be square, got 4 x 6"),
        (
            {"image_size": (12, 48)},
            "must be square, got 2 x 8",
        ),  # 16 of them, which would be 4 x 4
        ({"feedforward": "gelu"}, "loaded as gelu_tanh; got gelu"),
    ],
    ids=str,
)
def test_models_that_would_be_loaded_differently_are_not_written(tmp_path, settings, said):
    with pytest.raises(Unsupported, match=said) as error:
        google_vit.save(tmp_path / "vit.npz", ViT(Config(**vars(SMALL) | settings)))
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())
