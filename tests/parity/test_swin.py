"""Swin and Swin v2 of timm and of transformers and ours, from the same weights: values, gradients, maps, both ways."""

import copy
import json
from functools import partial

import pytest
import torch
from safetensors.torch import save

import regard
from regard.attention.capture.watch import watch
from regard.core.errors import BadInput, Unsupported
from regard.models import swin, swinv2
from regard.weights.folder import read_tensors
from regard.weights.hf import swin as hf_swin
from regard.weights.hf import swinv2 as hf_swinv2
from regard.weights.table import export_state_dict, import_state_dict
from regard.weights.timm import swin as timm_swin
from regard.weights.timm import swinv2 as timm_swinv2
from tests.long_params import rest_is_long

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

TABLES = {"timm_swin": timm_swin, "timm_swinv2": timm_swinv2, "hf_swin": hf_swin, "hf_swinv2": hf_swinv2}
CLASSES, LAYERS, HEADS, WINDOW, IMAGE = 5, (2, 3, 2), (2, 3, 4), 4, 48
OTHERS = [(48, 48), (64, 64), (56, 72), (44, 58)]  # its own; larger; neither square nor whole windows, in two ways


def peer(name, image=IMAGE, window=WINDOW, classes=CLASSES, **settings):
    """A tiny random one in float64, every tensor of it away from its initial value."""
    if name.startswith("timm"):
        from timm.models.swin_transformer import SwinTransformer
        from timm.models.swin_transformer_v2 import SwinTransformerV2

        theirs = (SwinTransformerV2 if name.endswith("v2") else SwinTransformer)(
            img_size=image, patch_size=2, embed_dim=12, depths=LAYERS, num_heads=HEADS, window_size=window,
            num_classes=classes, strict_img_size=False, **settings,
        )  # fmt: skip
    else:
        kind = "Swinv2" if name.endswith("v2") else "Swin"
        config = getattr(transformers, f"{kind}Config")(
            image_size=image, patch_size=2, embed_dim=12, depths=LAYERS, num_heads=HEADS, window_size=window,
            num_labels=classes, **settings,
        )  # fmt: skip
        theirs = getattr(transformers, f"{kind}ForImageClassification" if classes else f"{kind}Model")(config)
    torch.manual_seed(1)
    theirs = theirs.double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return theirs


def state(name, theirs, folder):
    """Their tensors under the names that stand in files."""
    if name.startswith("timm"):
        return theirs.state_dict()
    theirs.save_pretrained(folder)
    return read_tensors(folder)


def made(name, image=IMAGE, window=WINDOW, classes=CLASSES, **settings):
    module = swinv2 if name.endswith("v2") else swin
    padding = "shifted" if name.startswith("timm") else "attend"
    shape = {"patch_size": 2, "width": 12, "layers": LAYERS, "heads": HEADS, "num_classes": classes, "padding": padding}
    config = module.Config(image_size=image, window_size=window, **shape | settings)
    return (swinv2.SwinV2 if name.endswith("v2") else swin.Swin)(config).double().eval()


def pair(name, folder, **settings):
    theirs, ours = peer(name, **settings), made(name, **settings)
    import_state_dict(TABLES[name].table(ours.config), state(name, theirs, folder), ours)
    return theirs, ours


def answer(theirs, images):
    out = copy.deepcopy(theirs)(images)  # transformers' Swin forgets its shift once it has seen a small image
    return out if isinstance(out, torch.Tensor) else out.logits


close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("size", rest_is_long(OTHERS, (48, 48), (44, 58)), ids=str)
def test_logits_equal_the_peers_at_any_resolution(name, size, tmp_path):
    theirs, ours = pair(name, tmp_path)
    images = torch.randn(2, 3, *size).double()
    with torch.no_grad():
        wanted = answer(theirs, images)
        close(ours(images), wanted)
    assert wanted.std() > 0.05


@pytest.mark.parametrize("name", ["hf_swin", "hf_swinv2"])
def test_images_that_patches_do_not_divide_are_padded_like_the_peers(name, tmp_path):
    theirs, ours = pair(name, tmp_path)
    images = torch.randn(2, 3, 45, 51).double()
    with torch.no_grad():
        close(ours(images), answer(theirs, images))


@pytest.mark.parametrize("name", ["timm_swin", "timm_swinv2"])
@pytest.mark.parametrize("window", [5, 7])
def test_answers_equal_those_of_timm_where_a_stage_is_one_window(name, window, tmp_path):
    """Grids of 24, 12 and 6: the last is smaller than a window of 7; with 5 nothing is whole."""
    theirs, ours = pair(name, tmp_path, window=window)
    images = torch.randn(2, 3, 48, 48).double()
    with torch.no_grad():
        close(ours(images), answer(theirs, images))


@pytest.mark.parametrize("name", ["timm_swin", "timm_swinv2"])
def test_logits_equal_timm_with_another_image_size(name, tmp_path):
    """Grids of 8, 4, 2 and then of 20, 10, 5: a stage that was one window has several, and is shifted now."""
    theirs, ours = pair(name, tmp_path, image=16, window=2)
    theirs.set_input_size((40, 40), window_size=(2, 2))
    images = torch.randn(2, 3, 40, 40).double()
    with torch.no_grad():
        close(ours(images), answer(theirs, images))


@pytest.mark.parametrize("name", TABLES)
def test_logits_equal_the_peers_in_float32(name, tmp_path):
    theirs, ours = pair(name, tmp_path)
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        torch.testing.assert_close(ours.float()(images), answer(theirs.float(), images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["timm_swin", "timm_swinv2"])
def test_features_equal_those_of_timm(name, tmp_path):
    theirs, ours = pair(name, tmp_path)
    images = torch.randn(2, 3, 44, 58).double()
    with torch.no_grad():
        for mine, wanted in zip(
            ours.features(images), theirs.forward_intermediates(images, intermediates_only=True), strict=True
        ):
            close(mine, wanted)
        close(ours.grid(images), theirs.forward_features(images))


@pytest.mark.parametrize("name", TABLES)
def test_gradients_of_all_parameters_equal_the_peers(name, tmp_path):
    theirs, ours = pair(name, tmp_path)
    images = torch.randn(2, 3, 44, 58).double()
    pull = torch.randn(2, CLASSES).double()
    out = theirs(images)
    ((out if name.startswith("timm") else out.logits) * pull).sum().backward()
    (ours(images) * pull).sum().backward()
    with torch.no_grad():
        for model in (theirs, ours):  # their gradients in the place of their weights, for the table to carry over
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.copy_(parameter.grad)
    wanted, mine = state(name, theirs, tmp_path), export_state_dict(TABLES[name].table(ours.config), ours)
    assert set(wanted) == set(mine)
    for key, value in wanted.items():
        torch.testing.assert_close(mine[key], value, rtol=1e-8, atol=1e-8, msg=key)
        assert value.abs().max() > 0, key


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("size", [(48, 48), (44, 58)], ids=str)
def test_attention_maps_equal_the_peers(name, size, tmp_path):
    theirs, ours = pair(name, tmp_path)
    images, maps = torch.randn(2, 3, *size).double(), []
    told, place = {}, {"timm": "attn.softmax", "hf_swin": "attention", "hf_swinv2": "attention.self"}
    if name.startswith("hf"):
        theirs.set_attn_implementation("eager")
        told = {"output_attentions": True}
    wanted = place.get(name, place["timm"])
    for path, module in theirs.named_modules():
        if path.endswith(f".{wanted}"):
            module.register_forward_hook(lambda m, i, out: maps.append(out[1] if isinstance(out, tuple) else out))
    with torch.no_grad(), watch(ours) as seen:
        ours(images)
        theirs(images, **told)
    assert len(maps) == len(seen) == sum(LAYERS)
    for trace, expected in zip(seen.values(), maps, strict=True):
        torch.testing.assert_close(trace.weights, expected, rtol=1e-6, atol=1e-6)  # transformers' are of float32


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("classes", [CLASSES, 0])
def test_import_then_export_is_exact(name, classes, tmp_path):
    theirs, ours = pair(name, tmp_path, classes=classes)
    before, back = state(name, theirs, tmp_path), export_state_dict(TABLES[name].table(ours.config), ours)
    assert set(back) == set(before)
    for key, value in before.items():
        assert torch.equal(back[key], value), key


@pytest.mark.parametrize("name", ["timm_swin", "timm_swinv2"])
def test_timm_loads_exported_weights(name):
    theirs, ours = peer(name), made(name)
    theirs.load_state_dict(export_state_dict(TABLES[name].table(ours.config), ours))
    images = torch.randn(2, 3, 48, 48).double()
    with torch.no_grad():
        close(theirs(images), ours(images))


@pytest.mark.parametrize("name", ["hf_swin", "hf_swinv2"])
@pytest.mark.parametrize("classes", [CLASSES, 0])
def test_folders_are_exchanged_with_transformers(name, classes, tmp_path):
    ours = made(name, classes=classes).float()
    TABLES[name].save(tmp_path / "m", ours)
    kind = "Swinv2" if name.endswith("v2") else "Swin"
    cls = getattr(transformers, f"{kind}ForImageClassification" if classes else f"{kind}Model")
    theirs, told = cls.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    images = torch.randn(2, 3, 44, 58)
    with torch.no_grad():
        out = theirs.eval()(images)
        torch.testing.assert_close(ours(images), out.logits if classes else out.pooler_output, rtol=1e-4, atol=1e-4)
    theirs.save_pretrained(tmp_path / "again")
    back, _ = TABLES[name].load(tmp_path / "again")
    assert back.config == ours.config
    for mine, again in zip(ours.parameters(), back.parameters(), strict=True):
        assert torch.equal(mine, again)


@pytest.mark.parametrize("name", ["timm_swin", "timm_swinv2"])
@pytest.mark.parametrize("image", [48, (40, 56)])
def test_timm_loads_saved_folders(name, image, tmp_path):
    ours = made(name, image=image).float()
    TABLES[name].save(tmp_path / "m", ours)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True).eval()
    images = torch.randn(2, 3, *(image if isinstance(image, tuple) else (image, image)))
    with torch.no_grad():
        torch.testing.assert_close(theirs(images), ours(images), rtol=1e-4, atol=1e-4)
    back, _ = TABLES[name].load(tmp_path / "m")
    assert back.config == ours.config
    with torch.no_grad():
        assert torch.equal(back(images), ours(images))


SMALL = {"img_size": 64, "patch_size": 2, "embed_dim": 12, "depths": LAYERS, "num_heads": HEADS, "num_classes": 5}


@pytest.mark.parametrize(("name", "window", "trained"), [("swin_tiny_patch4_window7_224", 7, None),
    ("swinv2_tiny_window8_256", 8, None), ("swinv2_base_window12to24_192to384", 24, (12, 12, 12, 6))])  # fmt: skip
def test_folders_of_timm_load(name, window, trained, tmp_path):
    from timm.models._hub import save_for_hf

    arguments = SMALL | ({"depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 3)} if trained else {})
    theirs = timm.create_model(name, **arguments).eval()
    said = {"label_names": ["a", "b", "c", "d", "e"]}
    save_for_hf(theirs, tmp_path, model_config=said, model_args=arguments, safe_serialization=True)
    classify = regard.load(tmp_path)
    assert classify.labels == ["a", "b", "c", "d", "e"]
    assert (classify.preprocess.size, classify.model.config.window_size) == ((64, 64), window)
    assert getattr(classify.model.config, "pretrained_window_sizes", None) == trained
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(classify.model(images), theirs(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["swin_s3_tiny_224", "swinv2_cr_tiny_224"])
def test_unsupported_architectures_of_timm_raise(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
    (tmp_path / "model.safetensors").write_bytes(save({"x": torch.zeros(1)}))
    with pytest.raises(Unsupported, match=name):
        regard.load(tmp_path)


@pytest.mark.parametrize("name", ["hf_swin", "hf_swinv2"])
def test_folders_of_transformers_load(name, tmp_path):
    peer(name).float().save_pretrained(tmp_path)
    how = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "resample": 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(how))
    classify = regard.load(tmp_path)
    assert classify.labels == [f"LABEL_{n}" for n in range(CLASSES)]
    shown = classify.preprocess
    assert (shown.mean, shown.resample, shown.size) == ((0.1, 0.2, 0.3), "bicubic", (48, 48))
    peer(name, classes=0).float().save_pretrained(tmp_path)
    assert regard.load(tmp_path)(torch.randn(1, 3, 48, 48)).shape == (1, 48)


@pytest.mark.parametrize("name", ["timm_swinv2", "hf_swinv2"])
def test_changed_windows_equal_models_with_pretrained_window_sizes(name, tmp_path):
    theirs, ours = pair(name, tmp_path)
    larger = peer(name, image=80, window=7, pretrained_window_sizes=(4, 4, 4))
    larger.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 80, 80).double()
    moved = swinv2.change_window(ours, 80, 7)
    with torch.no_grad():
        wanted = answer(larger, images)
        close(moved(images), wanted)
        assert not torch.allclose(wanted, ours(images))


@pytest.mark.parametrize("name", ["hf_swin", "hf_swinv2"])
@pytest.mark.parametrize(("change", "said"), [({"model_type": "vit"}, "'vit'"), ({"hidden_act": "relu"}, "hidden_act"),
    ({"use_absolute_embeddings": True}, "use_absolute_embeddings"), ({"qkv_bias": False}, "qkv_bias")])  # fmt: skip
def test_unsupported_checkpoints_raise(name, change, said):
    with pytest.raises(Unsupported, match=said):
        TABLES[name].import_config(peer(name).config.to_dict() | change)


@pytest.mark.parametrize("name", TABLES)
def test_models_that_the_format_cannot_represent_raise(name):
    other = "table" if name.endswith("v2") else "continuous"
    with pytest.raises(Unsupported, match="needs positions="):
        TABLES[name].table(made(name, positions=other).config)
    wide = made(name, width=24)
    with pytest.raises(BadInput, match="shapes differ"):
        import_state_dict(
            TABLES[name].table(wide.config), export_state_dict(TABLES[name].table(made(name).config), made(name)), wide
        )


def test_a_window_larger_than_the_last_grid_raises():
    with pytest.raises(Unsupported, match="a side of 6"):
        hf_swin.table(made("hf_swin", window=7).config)


@pytest.mark.parametrize("name", rest_is_long(TABLES, "timm_swin"))
def test_every_training_size_equals_the_peers_or_is_refused(name, tmp_path, monkeypatch):
    """Odd grids, padded windows, windows of a whole grid, images that are not square; what is refused does differ."""
    refused = equal = 0
    for image in (48, 36, 37, 44, (48, 24), (24, 60)):
        for window in (3, 4, 7):
            y, x = image if isinstance(image, tuple) else (image, image)
            partial = 2 if name.startswith("timm") else 100  # timm takes only whole patches
            images = torch.randn(1, 3, y - y % partial % 2, x - x % partial % 2).double()
            try:
                theirs, ours = pair(name, tmp_path, image=image, window=window)
            except Unsupported:
                refused += 1
                with monkeypatch.context() as unchecked:
                    unchecked.setattr(TABLES[name], "_check", lambda config: None)
                    try:
                        theirs, ours = pair(name, tmp_path, image=image, window=window)
                    except BadInput:  # other windows, other tables
                        continue
                with torch.no_grad():
                    assert not torch.allclose(ours(images), answer(theirs, images))
                continue
            equal += 1
            with torch.no_grad():
                close(ours(images), answer(theirs, images))
    assert refused >= (0 if name.startswith("timm") else 3)
    assert equal >= 6


@pytest.mark.parametrize("name", ["timm_swin", "timm_swinv2"])
def test_sizes_for_which_older_versions_of_timm_build_other_windows_are_named(name, caplog):
    TABLES[name].export_config(made(name, image=48, window=3).config)
    assert not caplog.text
    TABLES[name].export_config(made(name, image=36, window=4).config)
    assert "windows of stage 2 for a grid side of 4" in caplog.text


@pytest.mark.parametrize("name", TABLES)
def test_padding_that_the_format_does_not_have_raises(name):
    """Windows of 5 do not divide grids of 24, 12 and 6; those of 3 do."""
    for padding in {"mask", "attend", "shifted"} - {made(name).config.padding}:
        with pytest.raises(Unsupported, match=f"padding='.*', got '{padding}'"):
            TABLES[name].export_config(made(name, window=5, padding=padding).config)
        assert TABLES[name].export_config(made(name, window=3, padding=padding).config)


@pytest.mark.parametrize(("ours", "theirs"), [("swin-t", "swin_tiny_patch4_window7_224"),
    ("swin-b384", "swin_base_patch4_window12_384"), ("swinv2-t", "swinv2_tiny_window8_256"),
    ("swinv2-s16", "swinv2_small_window16_256"), ("swinv2-l24", "swinv2_large_window12to24_192to384")])  # fmt: skip
def test_published_sizes_have_the_tensors_of_timm(ours, theirs):
    from regard.models import build

    name, _, size = ours.partition("-")
    with torch.device("meta"):
        mine, wanted = build(name, size=size), timm.create_model(theirs)
        found = export_state_dict(TABLES[f"timm_{name}"].table(mine.config), mine)
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in wanted.state_dict().items()}
    theirs_windows = [stage.blocks[0].window_size for stage in wanted.layers]
    assert theirs_windows == [stage.blocks[0].mix.window for stage in mine.stages]
