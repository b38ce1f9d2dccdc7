"""A classifier written for someone else keeps its labels and the way it is shown images."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.core.errors import RegardError
from regard.modalities.image import Preprocess
from regard.models import build
from regard.models.mvit import Config as MViTConfig
from regard.models.mvit import MViT
from regard.tasks.image.image_classification import ImageClassifier
from regard.weights.hf import deit as hf_deit
from regard.weights.hf import swin as hf_swin
from regard.weights.hf import swinv2 as hf_swinv2
from regard.weights.hf import vit as hf_vit
from regard.weights.other import google_vit
from regard.weights.timm import deit as timm_deit
from regard.weights.timm import mvitv2 as timm_mvitv2
from regard.weights.timm import resnet as timm_resnet
from regard.weights.timm import swin as timm_swin
from regard.weights.timm import swinv2 as timm_swinv2
from regard.weights.timm import vit as timm_vit

NAMES = ["cat", "dog", "Löwe"]
VIT = {"width": 16, "heads": 2, "layers": 1, "patch_size": 8, "eps": 1e-6}
SWIN = {"width": 8, "heads": (1, 2), "layers": (1, 1), "window_size": 4, "patch_size": 4}
SAVERS = {
    "hf_vit": (hf_vit, "vit", VIT | {"positions": "learned(antialias=False)"}),
    "hf_deit": (hf_deit, "deit", VIT | {"positions": "learned(antialias=False)"}),
    "hf_swin": (hf_swin, "swin", SWIN),
    "hf_swinv2": (hf_swinv2, "swinv2", SWIN),
    "timm_vit": (timm_vit, "vit", VIT),
    "timm_deit": (timm_deit, "deit", VIT),
    "timm_swin": (timm_swin, "swin", SWIN),
    "timm_swinv2": (timm_swinv2, "swinv2", SWIN),
    "timm_resnet": (timm_resnet, "resnet", {"size": "18"}),
    "timm_mvitv2": (timm_mvitv2, "mvit", {"size": "t", "image": 64}),
}


def photo(mode="RGB", size=(160, 120)):
    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).convert(mode)


SHAPES = [(160, 120), (121, 163), (90, 203), (35, 33), (64, 64)]  # columns and rows: odd margins, larger and smaller


def classifier(name="vit", image=32, channels=3, crop=0.9, resample="bilinear", **settings):
    torch.manual_seed(0)
    more = {field: settings.pop(field) for field in ("crop_mode", "crop_rounding") if field in settings}
    model = build(name, num_classes=len(NAMES), image_size=image, channels=channels, **settings)
    shown = {"mean": [0.485, 0.4, 0.3][:channels], "std": [0.2, 0.25, 0.3][:channels]}
    return ImageClassifier(model, NAMES, Preprocess(image, channels, crop=crop, resample=resample, **shown, **more))


@pytest.mark.parametrize("name", SAVERS)
def test_classifier_round_trip(tmp_path, name):
    module, kind, settings = SAVERS[name]
    ours = classifier(kind, **settings)
    module.save(tmp_path / "theirs", ours)
    again = regard.load(tmp_path / "theirs")
    for field in ("labels", "preprocess"):
        assert getattr(again, field) == getattr(ours, field), field
    assert again([photo()]) == ours([photo()])
    module.save(tmp_path / "theirs", again)  # what stands there is theirs: it may be replaced


@pytest.mark.parametrize("module", [hf_vit, timm_vit])
@pytest.mark.parametrize("shown", [
    {"channels": 1}, {"image": (24, 40), "crop": 0.97, "crop_mode": "squash"}, {"crop": 1.0}, {"image": 72},
    {"crop_mode": "squash"}, {"crop_rounding": "down"},
])  # fmt: skip
def test_classifier_round_trip_with_other_preprocessing(tmp_path, module, shown):
    ours = classifier(**SAVERS["hf_vit"][2], **shown)
    if module is timm_vit and "crop_rounding" in shown:
        with pytest.raises(RegardError, match="crop_rounding='down'"):
            module.save(tmp_path / "theirs", ours)
        return
    module.save(tmp_path / "theirs", ours)
    assert regard.load(tmp_path / "theirs")([photo()]) == ours([photo()])


@pytest.mark.parametrize("shown", [{"image": (24, 40)}, {"crop_mode": "border"}])
def test_preprocessing_that_transformers_cannot_do_is_refused(tmp_path, shown):
    with pytest.raises(RegardError, match="crop_mode"):
        hf_vit.save(tmp_path / "m", classifier(**SAVERS["hf_vit"][2], **shown))
    timm_vit.save(tmp_path / "m", ours := classifier(**SAVERS["hf_vit"][2], **shown))
    assert regard.load(tmp_path / "m")([photo()]) == ours([photo()])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_preprocessing_and_labels_equal_transformers(tmp_path, crop, channels):
    transformers = pytest.importorskip("transformers")
    ours = classifier(**SAVERS["hf_vit"][2], crop=crop, channels=channels)
    hf_vit.save(tmp_path / "m", ours)
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "m").eval()
    assert [theirs.config.id2label[n] for n in range(3)] == NAMES
    assert theirs.config.label2id == {label: n for n, label in enumerate(NAMES)}
    picture = photo("L" if channels == 1 else "RGB")
    shown = transformers.AutoImageProcessor.from_pretrained(tmp_path / "m", backend="pil")(picture, return_tensors="pt")
    torch.testing.assert_close(shown.pixel_values, ours.preprocess(picture), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("image", [32, (24, 40)])
def test_preprocessing_and_labels_equal_timm(tmp_path, image):
    timm = pytest.importorskip("timm")
    ours = classifier(**VIT, image=image)
    timm_vit.save(tmp_path / "m", ours)
    theirs = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True).eval()
    assert theirs.pretrained_cfg["label_names"] == NAMES
    told = timm.data.resolve_model_data_config(theirs)
    shown = timm.data.create_transform(**told, is_training=False)(photo())[None]
    torch.testing.assert_close(shown, ours.preprocess(photo()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("image", [32, (24, 40)])
@pytest.mark.parametrize("crop", [1.0, 0.875, 0.5])
def test_every_crop_mode_of_timm_shows_the_same(tmp_path, mode, image, crop):
    timm = pytest.importorskip("timm")
    timm_vit.save(tmp_path / "m", classifier(**VIT, image=image))
    said = json.loads((tmp_path / "m/config.json").read_text())
    said["pretrained_cfg"] |= {"crop_mode": mode, "crop_pct": crop, "interpolation": "bicubic"}
    (tmp_path / "m/config.json").write_text(json.dumps(said))
    theirs = timm.create_model(f"local-dir:{tmp_path / 'm'}", pretrained=True)
    show = timm.data.create_transform(**timm.data.resolve_model_data_config(theirs), is_training=False)
    ours = regard.load(tmp_path / "m")
    for size in SHAPES:
        torch.testing.assert_close(ours.preprocess(photo(size=size))[0], show(photo(size=size)), rtol=1e-4, atol=1e-4)


SQUARE, SHORT = {"height": 32, "width": 32}, {"shortest_edge": 40}


@pytest.mark.parametrize("said", [
    {}, {"size": SQUARE}, {"size": 32}, {"size": {"height": 24, "width": 40}}, {"do_normalize": False},
    {"do_rescale": False}, {"do_rescale": False, "do_normalize": False}, {"rescale_factor": 1 / 127.5},
    {"size": 40, "do_center_crop": True, "crop_size": 32}, {"size": SHORT, "do_center_crop": True, "crop_size": SQUARE},
    {"image_processor_type": "DeiTImageProcessor"}, {"image_processor_type": "BitImageProcessor"},
    {"image_processor_type": "DeiTImageProcessor", "size": 37, "crop_size": 32, "resample": 2},
    {"image_processor_type": "BitImageProcessor", "size": 37, "crop_size": 32},
    {"image_processor_type": "BitImageProcessor", "size": SHORT, "crop_size": 32, "do_normalize": False},
    {"image_processor_type": "DeiTImageProcessor", "do_center_crop": False, "size": SQUARE, "image_mean": [0, 0, 1]},
    {"image_processor_type": "ViTImageProcessorFast", "size": SQUARE, "do_center_crop": None, "resample": 3},
    {"image_processor_type": "BitImageProcessor", "size": SQUARE, "do_center_crop": None}, {"do_normalize": None},
    {"size": 40, "default_to_square": False, "do_center_crop": True, "crop_size": 32},
], ids=str)  # fmt: skip
def test_images_are_shown_as_the_processor_of_the_folder_does(tmp_path, said):
    transformers = pytest.importorskip("transformers")
    hf_vit.save(tmp_path / "m", classifier(**SAVERS["hf_vit"][2]))
    is_vit = said.get("image_processor_type", "ViT").startswith("ViT")
    said = ({"image_processor_type": "ViTImageProcessor", "size": SQUARE} if is_vit else {}) | said
    (tmp_path / "m/preprocessor_config.json").write_text(json.dumps(said))
    ours = regard.load(tmp_path / "m")
    for backend, atol in (("pil", 1e-4), ("torchvision", 0.05)):  # the other one resizes in floating point
        show = transformers.AutoImageProcessor.from_pretrained(tmp_path / "m", backend=backend)
        for size in SHAPES:
            wanted = show(photo(size=size), return_tensors="pt").pixel_values
            unit = 255 if said.get("do_rescale") is False else 1
            torch.testing.assert_close(ours.preprocess(photo(size=size)), wanted.float(), rtol=1e-4, atol=unit * atol)


@pytest.mark.parametrize("said", [
    {"do_resize": None}, {"do_center_crop": True},
    {"do_resize": False}, {"do_pad": True}, {"size": {"shortest_edge": 32}}, {"size": {"longest_edge": 32}},
    {"image_processor_type": "ConvNextImageProcessor"}, {"size": 20, "do_center_crop": True, "crop_size": 32},
    {"size": SQUARE, "do_center_crop": True, "crop_size": {"height": 16, "width": 24}}, {"resample": 5},
], ids=str)  # fmt: skip
def test_preprocessing_that_is_not_supported_is_refused(tmp_path, said):
    hf_vit.save(tmp_path / "m", classifier(**SAVERS["hf_vit"][2]))
    (tmp_path / "m/preprocessor_config.json").write_text(json.dumps(said))
    with pytest.raises(RegardError, match=r"supported|must be one of"):
        regard.load(tmp_path / "m")


def test_resize_before_the_crop_equals_transformers(tmp_path):
    hf_vit.save(tmp_path / "m", classifier(**SAVERS["hf_vit"][2], image=32))
    said = json.loads((tmp_path / "m/preprocessor_config.json").read_text())
    del said["crop_pct"]
    for cut, size in ((9, 14), (14, 25), (224, 256)):  # 9 / (9 / 14) is a little less than 14
        said |= {"size": {"shortest_edge": size}, "crop_size": {"height": cut, "width": cut}}
        (tmp_path / "m/preprocessor_config.json").write_text(json.dumps(said))
        assert cut // hf_vit.load(tmp_path / "m")[1]["preprocess"]["crop"] == size


@pytest.mark.parametrize("name", SAVERS)
@pytest.mark.parametrize(
    "other", [lambda: classifier("cct", size="tiny"), lambda: classifier("cct", size="tiny").model, str]
)
def test_models_that_the_format_cannot_represent_raise_one_line(tmp_path, name, other):
    with pytest.raises(RegardError, match=r"needs a \w+, got a (CCT|str)") as error:
        SAVERS[name][0].save(tmp_path / "m", other())
    assert "\n" not in str(error.value)
    assert not (tmp_path / "m").exists()


def test_other_models_sizes_and_labels_raise(tmp_path):
    with pytest.raises(RegardError, match="got a ResNet"):
        hf_vit.save(tmp_path / "m", classifier("resnet", size="18"))
    with pytest.raises(RegardError):
        timm_mvitv2.save(tmp_path / "m", MViT(MViTConfig(num_classes=3, num_frames=4, image_size=32)))
    ours = classifier(**VIT)
    with pytest.raises(RegardError, match="give a ViT, not ImageClassifier"):
        google_vit.save(tmp_path / "m.npz", ours)
    ours.preprocess = replace(ours.preprocess, size=(48, 48))
    with pytest.raises(RegardError, match=r"32 x 32\), got 48 x 48"):
        timm_vit.save(tmp_path / "m", ours)
    ours.preprocess, ours.labels = replace(ours.preprocess, size=(32, 32)), ["one"]
    with pytest.raises(RegardError, match="expected 3 labels, one for each class, got 1"):
        timm_vit.save(tmp_path / "m", ours)
