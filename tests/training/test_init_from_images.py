"""Image runs that start from given weights: at another size, with another head, from other libraries' folders."""

import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.core.errors import BadInput
from regard.data.images.image_dataset import ImageDataset
from regard.models import deit, vit
from regard.tasks.image import image_classification
from regard.training import init_from, train
from regard.training.recipe import Recipe, Train
from regard.weights.checkpoint_formats import HF_IMAGE_IMPORTERS
from regard.weights.folder import load_model
from regard.weights.hf import DEFAULTS

SMALL = {"patch_size": 4, "width": 16, "heads": 2, "layers": 2, "ffn": 24}


def made(**settings):
    return vit.ViT(vit.Config(**SMALL | {"image_size": 12, "num_classes": 3} | settings))


def test_positions_are_drawn_for_the_new_grid_and_all_else_is_taken(tmp_path):
    old, new = made(), made(image_size=(20, 28), num_classes=5)
    regard.save(old, tmp_path / "old")
    head = new.head.weight.clone()
    message = init_from.load_initial_weights(new, tmp_path / "old")
    assert "new: head.weight, head.bias" in message
    assert torch.equal(new.head.weight, head)
    x = torch.randn(2, 3, 20, 28)
    with torch.no_grad():  # what the old one sees in an image of this size, the new one sees too
        torch.testing.assert_close(new.eval().pooled(x), old.eval().pooled(x))
    assert torch.equal(new.positions.table[:1], old.positions.table[:1])


def test_other_differences_are_still_refused(tmp_path):
    regard.save(made(), tmp_path / "old")
    with pytest.raises(BadInput, match=r"stem\.embed\.weight"):
        init_from.load_initial_weights(made(patch_size=6), tmp_path / "old")
    with pytest.raises(BadInput, match=r"positions\.table is \(10, 16\) in the source, \(9, 16\) in the model"):
        init_from.load_initial_weights(made(positions="learned(prefix=0)"), tmp_path / "old")
    with pytest.raises(BadInput, match=r"positions\.table is \(10, 16\) in the source, \(26, 24\) in the model"):
        init_from.load_initial_weights(made(width=24, image_size=20), tmp_path / "old")
    with pytest.raises(BadInput, match="it is a ViT, this model is a DeiT"):
        init_from.load_initial_weights(deit.DeiT(deit.Config(**SMALL, image_size=12, num_classes=3)), tmp_path / "old")


def test_a_run_can_start_from_a_transformers_folder(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ViTConfig(**sizes, image_size=12, patch_size=4, num_labels=7)
    reference = transformers.ViTForImageClassification(config)
    reference.save_pretrained(tmp_path / "reference")
    dice = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            Image.fromarray(dice.integers(0, 255, (16, 16, 3), np.uint8)).save(
                tmp_path / f"pictures/{name}/{number}.png"
            )
    recipe = Recipe(
        vit.Config(**SMALL, eps=1e-12, positions="learned(antialias=False)"),
        image_classification.Config(),
        ImageDataset(str(tmp_path / "pictures"), image_size=16, batch_size=4, val_fraction=0.2),
        Train(
            steps=2,
            learning_rate=0.0,
            eval_interval=2,
            save_interval=2,
            log_interval=2,
            device="cpu",
            init_from=str(tmp_path / "reference"),
        ),
        "pictures",
    )
    train(recipe, tmp_path / "run")
    found = regard.load(tmp_path / "run" / "model").model
    assert found.head.weight.shape == (2, 16)
    assert torch.equal(found.encoder.norm.weight, reference.vit.layernorm.weight)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = reference.eval().vit(x, interpolate_pos_encoding=True).last_hidden_state[:, 0]
        torch.testing.assert_close(found.pooled(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("table", "model"),
    [
        ("timm.vit", lambda: made()),
        ("hf.swin", lambda: regard.build("swin", size="tiny", num_classes=3)),
        ("timm.swinv2", lambda: regard.build("swinv2", size="tiny", num_classes=3)),
    ],
)
def test_a_run_can_start_from_any_loadable_image_model(tmp_path, table, model):
    old, new = model(), model()
    import_module(f"regard.weights.{table}").save(tmp_path / "reference", old)
    init_from.load_initial_weights(new, tmp_path / "reference")
    assert all(torch.equal(a, b) for a, b in zip(old.parameters(), new.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["vit", "swin", "swinv2"])
def test_the_reader_that_an_error_names_is_there(tmp_path, kind):
    (tmp_path / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    with pytest.raises(BadInput, match=rf"read it with regard\.weights\.hf\.{kind}\.load"):
        load_model(tmp_path)
    assert import_module(f"regard.weights.hf.{kind}").load


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit_tiny_patch16_224", {"embed_dim": 16, "depth": 2, "num_heads": 2, "img_size": 32}),
        ("resnet18", {}),
    ],
)
def test_a_run_can_start_from_a_timm_folder(name, settings, tmp_path):
    timm = pytest.importorskip("timm")
    reference = timm.create_model(name, num_classes=4, **settings).eval()
    timm.models.save_for_hf(reference, tmp_path / "reference", model_args=settings | {"num_classes": 4})
    source_model = regard.load(tmp_path / "reference").model
    new = type(source_model)(replace(source_model.config, num_classes=3))
    message = init_from.load_initial_weights(new, init_from.resolve_source(str(tmp_path / "reference")))
    assert message.endswith("new: head.weight, head.bias")
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(new.eval().pooled(x), source_model.pooled(x))


def test_an_unsupported_model_type_lists_the_supported_ones(tmp_path):
    (tmp_path / "beit").mkdir()
    (tmp_path / "beit" / "config.json").write_text('{"model_type": "beit"}', encoding="utf-8")
    for read in (regard.load, lambda folder: init_from.load_initial_weights(made(), folder)):
        with pytest.raises(BadInput, match=r"a 'beit' folder of transformers; supported: .*swin.*vit"):
            read(tmp_path / "beit")
    with pytest.raises(BadInput) as caught:
        regard.load(tmp_path / "beit")
    speech = {"parakeet_ctc", "wav2vec2-conformer"}  # by functions of their own
    assert {*str(caught.value).partition("supported: ")[2].split(", ")} == {*DEFAULTS, *HF_IMAGE_IMPORTERS, *speech}
    (tmp_path / "beit" / "config.json").write_text('{"architecture": "convnext_atto"}', encoding="utf-8")
    with pytest.raises(BadInput, match=r"timm's 'convnext_atto' .* is not supported; supported: ViT, DeiT, Swin"):
        regard.load(tmp_path / "beit")


def test_labels_without_numbers_are_one_line(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ViTConfig(**sizes, image_size=12, patch_size=4, num_labels=2)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "reference")
    message = json.loads((tmp_path / "reference" / "config.json").read_text("utf-8"))
    message["id2label"] = {"cat": "0", "dog": "1"}
    (tmp_path / "reference" / "config.json").write_text(json.dumps(message), encoding="utf-8")
    with pytest.raises(BadInput, match=r"labels in config\.json must be numbered"):
        regard.load(tmp_path / "reference")


def test_a_classifier_is_the_backbone_of_dense_models(tmp_path):
    """Its head is left out, and its positions are resized to another grid; every other tensor of it is copied."""
    shape = {"image_size": 32, "patch_size": 8, "width": 24, "heads": 2, "layers": 4}
    regard.save(vit.ViT(vit.Config(num_classes=5, **shape)), tmp_path / "vit")
    regard.save(regard.build("swin", size="tiny", width=16, heads=(2, 4, 4)), tmp_path / "swin")
    plain = {"positions": "learned", "image_size": 64}
    for name, settings, source, part in (
        ("dpt", shape | plain, "vit", "backbone"),
        ("segmenter", shape, "vit", "encoder"),
        ("swin_pyramid", {}, "swin", "backbone"),
    ):
        model, other = regard.build(name, size="tiny", **settings), load_model(tmp_path / source).model
        said = init_from.load_initial_weights(model, tmp_path / source)
        assert "2 not used" in said
        own = dict(model.get_submodule(part).named_parameters())
        wanted = {n: p for n, p in other.named_parameters() if not n.startswith("head.")}
        if name == "dpt":
            wanted["positions.table"] = other.positions.vectors((8, 8), 1)
        assert own.keys() == wanted.keys()
        assert all(torch.equal(p, wanted[n]) for n, p in own.items()), name


def test_a_source_of_colour_is_not_trained_on_grey_images_without_a_word(tmp_path):
    data = ImageDataset(str(tmp_path), grayscale=True)
    given = Recipe(vit.Config(**SMALL, image_size=12, num_classes=3), image_classification.Config(), data, Train())
    found = regard.load("fashion")
    regard.save(found, tmp_path / "grey")
    given = replace(given, train=replace(given.train, init_from=str(tmp_path / "grey")))
    adopted, line = init_from.adopt_source(given, ["data.grayscale"])
    assert adopted.data.grayscale
    assert "images of 28 pixels, grey" in line
    colour = replace(given, data=replace(data, grayscale=False))
    assert init_from.adopt_source(colour)[0].data.grayscale
    with pytest.raises(BadInput, match=r"grey reads grey images; leave out data\.grayscale"):
        init_from.adopt_source(colour, ["data.grayscale"])
