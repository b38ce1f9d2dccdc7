"""transformers' ViT and DeiT and ours, from the same weights: values, gradients, maps, other sizes, folders."""

import json

import pytest
import torch

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.modalities.image import Preprocess
from regard.models.deit import Config as DeiTConfig
from regard.models.deit import DeiT
from regard.models.vit import Config, ViT
from regard.weights.hf import deit as hf_deit
from regard.weights.hf import vit as hf_vit
from regard.weights.table import import_state_dict

from .harness import round_trip, shaken
from .image_models import gradients_agree, same

transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

CLASSES = [
    "ViTForImageClassification",
    "ViTModel",
    "DeiTForImageClassification",
    "DeiTForImageClassificationWithTeacher",
]
SIZES = [(24, 24), (36, 36), (12, 12), (48, 18)]


def peer(name, attention="sdpa", **settings):
    """A tiny random model in float64, every tensor of it away from its initial value."""
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "image_size": 24,
        "patch_size": 6,
        "num_labels": 5,
    }
    kind = transformers.DeiTConfig if name.startswith("DeiT") else transformers.ViTConfig
    config = kind(**sizes | settings)
    config._attn_implementation = attention  # eager, the softmax would be in float32
    config.architectures = [name]
    return shaken(getattr(transformers, name)(config))


def pair(name, **settings):
    theirs = peer(name, **settings)
    module = hf_deit if name.startswith("DeiT") else hf_vit
    config = module.import_config(theirs.config.to_dict())
    ours = (DeiT if isinstance(config, DeiTConfig) else ViT)(config).double().eval()
    rows = module.table(config)
    import_state_dict(rows, hf_vit.add_missing_biases(hf_vit.normalize_keys(theirs.state_dict())), ours)
    return theirs, ours, rows


def answer(theirs, x):
    out = theirs(x, interpolate_pos_encoding=True)
    return out.pooler_output if hasattr(out, "pooler_output") else out.logits


def images(*size, channels=3):
    return torch.randn(2, channels, *size, dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CLASSES)
def test_answers_equal_those_of_transformers_at_every_size(name, size):
    theirs, ours, _ = pair(name)
    x = images(*size)
    with torch.no_grad():
        same(ours(x), answer(theirs, x))


@pytest.mark.parametrize("settings", [{"hidden_act": "relu"}, {"layer_norm_eps": 1e-3}, {"num_channels": 1},
    {"qkv_bias": False}, {"pooler_output_size": 7}], ids=str)  # fmt: skip
def test_answers_equal_those_of_transformers_with_other_settings(settings):
    for name in CLASSES[:2]:
        theirs, ours, _ = pair(name, **settings)
        x = images(24, 24, channels=theirs.config.num_channels)
        with torch.no_grad():
            same(ours(x), answer(theirs, x))


@pytest.mark.parametrize("name", CLASSES)
def test_gradients_of_all_parameters_equal_those_of_transformers(name):
    theirs, ours, rows = pair(name)
    x = images(36, 18)
    gradients_agree(theirs, answer(theirs, x), ours, ours(x), rows, hf_vit.normalize_keys)


@pytest.mark.parametrize("name", CLASSES)
def test_maps_and_tokens_equal_those_of_transformers(name):
    theirs, ours, _ = pair(name, attention="eager")
    x = images(24, 24)
    with torch.no_grad(), watch(ours) as seen:
        ours(x)
        out = theirs(x, output_attentions=True, output_hidden_states=True)
        for trace, expected in zip(seen.values(), out.attentions, strict=True):
            same(trace.weights, expected, 1e-6)
        between = ours.encoder.intermediate_layers(ours.sequence(ours.stem(x)), [0, 1, 2])
        for mine, wanted in zip(between, out.hidden_states[:3], strict=True):
            same(mine, wanted, 1e-6)


@pytest.mark.parametrize("name", CLASSES)
def test_import_then_export_is_exact(name):
    theirs, ours, rows = pair(name)
    round_trip(hf_vit.normalize_keys(theirs.state_dict()), rows, ours)


@pytest.mark.parametrize("name", CLASSES)
def test_folders_are_exchanged_with_transformers(tmp_path, name):
    theirs, ours, _ = pair(name)
    module = hf_deit if name.startswith("DeiT") else hf_vit
    module.save(tmp_path / "a", ours.float())
    assert json.loads((tmp_path / "a/config.json").read_text())["architectures"] == [name]
    again, info = getattr(transformers, name).from_pretrained(tmp_path / "a", output_loading_info=True)
    assert not [kind for kind in ("unexpected_keys", "mismatched_keys", "missing_keys") if info[kind]]
    x = images(24, 24).float()
    with torch.no_grad():
        torch.testing.assert_close(answer(again.eval(), x), ours(x), rtol=1e-4, atol=1e-4)
    theirs.float().save_pretrained(tmp_path / "b")
    found, _ = module.load(tmp_path / "b")
    assert found.config == ours.config
    with torch.no_grad():
        assert torch.equal(found(x), ours(x))
    module.save(tmp_path / "a", found)  # what stands there is theirs: it may be replaced


@pytest.mark.parametrize("name", [*CLASSES[:1], *CLASSES[2:]])
def test_load_returns_a_classifier_with_the_preprocessing_of_the_folder(tmp_path, name):
    theirs = peer(name, id2label=dict(enumerate("abcde"))).float()
    theirs.save_pretrained(tmp_path)
    how = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.1, 0.2, 0.3], "resample": 3, "do_center_crop": True,
        "size": {"shortest_edge": 30}, "crop_size": {"height": 24, "width": 24}}  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(how))
    classify = regard.load(tmp_path)
    assert classify.labels == [*"abcde"]
    mean, std = (0.4, 0.5, 0.6), (0.1, 0.2, 0.3)
    assert classify.preprocess == Preprocess((24, 24), 3, mean, std, crop=0.8, resample="bicubic", crop_rounding="down")
    from PIL import Image

    picture = Image.effect_noise((50, 40), 60).convert("RGB")
    (found,) = classify([picture])
    with torch.no_grad():
        expected = answer(theirs, classify.preprocess(picture)).softmax(-1)[0]
    assert found.label == "abcde"[int(expected.argmax())]
    assert found.probability == pytest.approx(float(expected.max()), abs=1e-4)


def test_a_bare_body_is_loaded_as_a_model(tmp_path):
    theirs = peer("ViTModel").float()
    theirs.save_pretrained(tmp_path)
    model = regard.load(tmp_path)
    assert isinstance(model, ViT)
    x = images(24, 24).float()
    with torch.no_grad():
        torch.testing.assert_close(model(x), theirs(x).pooler_output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "dinov2"}, "'dinov2'"),
        ({"hidden_act": "quick_gelu"}, "'quick_gelu'"),
        ({"architectures": ["ViTModel"], "pooler_act": "relu"}, "pooler_act"),
        ({"architectures": ["ViTForMaskedImageModeling"]}, "ViTForMaskedImageModeling"),
    ],
)
def test_unsupported_checkpoints_raise(change, said):
    with pytest.raises(Unsupported, match=said):
        hf_vit.import_config(peer("ViTForImageClassification").config.to_dict() | change)


@pytest.mark.parametrize(
    "settings",
    [
        {"pool": "mean"},
        {"num_prefix_tokens": 2},
        {"layer_scale": 1.0},
        {"feedforward": "swiglu"},
        {"representation_size": 4},
        {"positions": "learned(prefix=0)"},
        {"image_size": 40},  # 16 x 16 patches cover 32 x 32
    ],
    ids=str,
)
def test_models_that_the_format_cannot_represent_raise(settings):
    (name,) = settings
    with pytest.raises(Unsupported, match=f"transformers' ViT needs {name}"):
        hf_vit.table(Config(**settings))


def test_weights_of_another_model_raise_with_both_lists():
    _, ours, rows = pair("ViTForImageClassification")
    with pytest.raises(BadInput, match=r"vit\.encoder\.layer\.3\.attention\.attention\.query\.weight"):
        import_state_dict(
            rows, hf_vit.normalize_keys(peer("ViTForImageClassification", num_hidden_layers=4).state_dict()), ours
        )
