"""Dense models and detectors on the grids of an EfficientNet, and the panoptic head of Deformable DETR."""

from dataclasses import replace

import pytest
import torch

import regard
from regard.core.config import from_dict, to_dict
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.models import deformable_detr, detr, dpt, efficientnet_lite, segmenter, unet
from regard.training.init_from import load_initial_weights
from regard.weights.hf import detr as hf_detr
from regard.weights.hf import dpt as hf_dpt
from regard.weights.other import detr as original_detr

BACKBONE = efficientnet_lite.Config(**{**efficientnet_lite.SIZES["tiny"], "num_classes": 0})
FINE = efficientnet_lite.grid_widths(BACKBONE)[:2]
SEGMENTER = segmenter.Config(num_outputs=5, image_size=32, width=24, heads=2, layers=1, backbone=BACKBONE)
DPT = dpt.Config(
    num_outputs=5, image_size=32, width=24, heads=2, layers=2, out_layers=(1, 2), reassemble_widths=(*FINE, 8, 8),
    fusion_width=8, backbone=BACKBONE,
)  # fmt: skip
MODELS = {
    "segmenter": segmenter.Segmenter(SEGMENTER),
    "dpt": dpt.DPT(DPT),
    "unet": unet.UNet(unet.Config(num_outputs=5, backbone=BACKBONE)),
    "detr": detr.DETR(detr.Config(**{**detr.SIZES["tiny"], "backbone": BACKBONE})),
    "deformable_detr": deformable_detr.DeformableDETR(
        deformable_detr.Config(**{**deformable_detr.SIZES["tiny"], "backbone": BACKBONE})
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_trained_weight_has_a_gradient_and_images_of_odd_sizes_fit(name):
    model = MODELS[name].train()
    found = model(torch.randn(2, 3, 37, 51))
    answers = [found] if torch.is_tensor(found) else [found.logits, found.boxes]
    if torch.is_tensor(found):
        assert found.shape == (2, 5, 37, 51)
    model.zero_grad()
    sum((x * torch.randn_like(x)).sum() for x in answers).backward()
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.parametrize("name", MODELS)
def test_imagenet_weights_are_copied_into_the_backbone_and_the_config_survives_json(name, tmp_path):
    torch.manual_seed(1)
    source = efficientnet_lite.EfficientNetLite(replace(BACKBONE, num_classes=7))
    regard.save(source, tmp_path / "imagenet")
    model = MODELS[name]
    said = load_initial_weights(model, tmp_path / "imagenet")
    assert "backbone" in said
    own = next(m for m in model.modules() if isinstance(m, efficientnet_lite.EfficientNetLite)).eval()
    images = torch.randn(1, 3, 32, 32)
    for a, b in zip(own.features(images), source.eval().features(images), strict=True):
        assert torch.equal(a, b)
    assert from_dict(type(model.config), to_dict(model.config)) == model.config


def test_grids_are_as_wide_and_as_coarse_as_they_say():
    model = efficientnet_lite.EfficientNetLite(BACKBONE)
    maps = model.features(torch.randn(1, 3, 64, 96))
    assert [x.shape[1] for x in maps] == efficientnet_lite.grid_widths(BACKBONE)
    assert [64 // x.shape[2] for x in maps] == efficientnet_lite.grid_strides(BACKBONE)


def test_what_other_libraries_do_not_have_is_refused():
    for table, config in ((hf_detr.table, MODELS["detr"].config), (original_detr.table, MODELS["detr"].config)):
        with pytest.raises(Unsupported, match="EfficientNet"):
            table(config)
    with pytest.raises(Unsupported, match="backbone"):
        hf_dpt.table(DPT)
    with pytest.raises(BadInput, match="cannot be frozen"):
        detr.DETR(replace(MODELS["detr"].config, frozen_stages=1))
    with pytest.raises(RegardError, match="widths of the backbone"):
        dpt.DPT(replace(DPT, reassemble_widths=(3, 3, 8, 8)))


# -- the panoptic head of Deformable DETR ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def panoptic():
    torch.manual_seed(2)
    settings = {**deformable_detr.SIZES["tiny"], "backbone": detr.backbone("18", width=8, norm="batch"), "heads": 8}
    config = deformable_detr.Config(**settings, masks=True, anchor_boxes=True, query_groups=2)
    return deformable_detr.DeformableDETR(config).double()


def test_masks_belong_to_the_first_group_at_the_size_of_the_finest_grid(panoptic):
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    found = panoptic.train()(images)
    assert found.logits.shape[2] == 14
    assert found.masks.shape == (2, 7, 16, 24)
    assert panoptic.eval()(images).masks.shape == (2, 7, 16, 24)


def test_masks_do_not_depend_on_what_pads_an_image_or_on_the_batch(panoptic):
    images, sizes = torch.zeros(2, 3, 64, 96, dtype=torch.float64), torch.tensor([[64, 96], [32, 64]])
    for image, (y, x) in zip(images, sizes.tolist(), strict=True):
        image[:, :y, :x] = torch.randn(3, y, x, dtype=torch.float64)
    with torch.no_grad():
        both = panoptic.eval()(images, sizes).masks
        for n in range(2):
            alone = panoptic(images[n : n + 1], sizes[n : n + 1]).masks
            torch.testing.assert_close(both[n : n + 1], alone, rtol=1e-9, atol=1e-9)
