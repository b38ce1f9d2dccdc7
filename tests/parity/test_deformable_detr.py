"""Deformable DETR of transformers, with box refinement, and ours, from the same weights."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.models.deformable_detr import Config, DeformableDETR
from regard.models.detr import backbone
from regard.weights.table import Row, import_state_dict, linear, nested, same, stack
from regard.weights.timm import resnet

from .harness import exported_gradients, shaken
from .test_detr import SIZES_OF_BATCH, batch, close

transformers = pytest.importorskip("transformers")
pytest.importorskip("timm")
WIDTH, HEADS, OUTPUTS = 32, 4, 6


def table(config):
    """Their names and ours; they have the box heads twice."""
    rows = nested(resnet.table(config.backbone), "model.backbone.model.", "stem.backbone.")
    rows += [
        *linear("model.input_proj.{l}.{n}", "stem.project.{l}.{n}"),
        Row("model.query_position_embeddings.weight", "queries", same),
        Row("model.level_embed", "level_vectors", same),
        *linear("model.reference_points", "reference"),
        *linear("class_embed.{}", "class_heads.{}"),
        *linear("bbox_embed.{l}.layers.{n}", "box_heads.{l}.layers.{n}"),
    ]
    deformable = {
        "sampling_offsets": "offsets",
        "attention_weights": "scores",
        "value_proj": "value",
        "output_proj": "out",
    }
    for side, name, part in (("encoder", "self_attn", "mix"), ("decoder", "encoder_attn", "cross")):
        there, here = f"model.{side}.layers.{{}}", f"{side}.{{}}"
        for theirs, ours in deformable.items():
            rows += linear(f"{there}.{name}.{theirs}", f"{here}.{part}.{ours}")
        rows += linear(f"{there}.{name}_layer_norm", f"{here}.{part}_norm")
        rows += linear(f"{there}.mlp.fc1", f"{here}.feed.up") + linear(f"{there}.mlp.fc2", f"{here}.feed.down")
        rows += linear(f"{there}.final_layer_norm", f"{here}.feed_norm")
    rows += linear(f"{there}.self_attn.o_proj", f"{here}.mix.join.out")
    rows += linear(f"{there}.self_attn_layer_norm", f"{here}.mix_norm")
    three = stack("three (h d) ... -> (h three d) ...", three=3, h=HEADS)
    for kind in ("weight", "bias"):
        names = tuple(f"{there}.self_attn.{name}_proj.{kind}" for name in "qkv")
        rows.append(Row(names, f"{here}.mix.project.qkv.{kind}", three))
    return rows


def pair():
    config = transformers.DeformableDetrConfig(
        backbone="resnet18",
        use_pretrained_backbone=False,
        num_labels=OUTPUTS,
        num_queries=7,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=3,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        num_feature_levels=4,
        encoder_n_points=2,
        decoder_n_points=2,
        dropout=0.0,
        with_box_refine=True,
    )
    config._attn_implementation = "eager"
    theirs = shaken(transformers.DeformableDetrForObjectDetection(config), by=0.02)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "backbone" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        theirs.bbox_embed.load_state_dict(theirs.model.decoder.bbox_embed.state_dict())  # meant to be one
    ours = DeformableDETR(
        Config(
            num_classes=OUTPUTS - 1,
            num_queries=7,
            backbone=backbone("18"),
            points=2,
            width=WIDTH,
            heads=HEADS,
            ffn=24,
            encoder_layers=2,
            decoder_layers=3,
            dropout=0.0,
        )
    )
    ours = ours.double().eval()
    state = {name: value for name, value in theirs.state_dict().items() if "decoder.bbox_embed" not in name}
    import_state_dict(table(ours.config), state, ours)
    return theirs, ours


def test_logits_and_boxes_of_every_layer_equal_those_of_transformers():
    theirs, ours = pair()
    images, there = batch()
    with torch.no_grad():
        for sizes, mask in ((SIZES_OF_BATCH, there), (None, None)):
            expected, found = theirs(images, pixel_mask=mask), ours(images, sizes)
            close(found.logits[-1], expected.logits, 1e-8)
            close(found.boxes[-1], expected.pred_boxes, 1e-8)
            for layer in range(3):
                close(found.boxes[layer], expected.intermediate_reference_points[:, layer], 1e-8)
            assert expected.logits.std() > 0.1
            assert (expected.pred_boxes[0, 0] - expected.pred_boxes[0, 1]).abs().max() > 0.01


def test_gradients_equal_those_of_transformers():
    """Of the last layer's boxes and logits; anchors pass no gradient to the layer below."""
    theirs, ours = pair()
    ours.requires_grad_(True)
    images, there = batch()
    expected, found = theirs(images, pixel_mask=there), ours(images, SIZES_OF_BATCH)
    pulls = [torch.randn_like(x) for x in (expected.logits, expected.pred_boxes)]
    (expected.logits * pulls[0]).sum().add((expected.pred_boxes * pulls[1]).sum()).backward()
    (found.logits[-1] * pulls[0]).sum().add((found.boxes[-1] * pulls[1]).sum()).backward()
    mapped = exported_gradients(table(ours.config), ours)
    compared = 0
    for name, parameter in theirs.named_parameters():
        if parameter.grad is not None and "bbox_embed" not in name and "class_embed" not in name:
            torch.testing.assert_close(mapped[name], parameter.grad, rtol=1e-6, atol=1e-8, msg=name)
            compared += 1
    assert compared > 100


def test_bad_settings_are_refused():
    with pytest.raises(BadInput, match="backbone_levels must be at most 2"):
        DeformableDETR(Config(backbone_levels=3, pyramid_levels=2))
    with pytest.raises(BadInput, match="needs anchor_boxes=True"):
        DeformableDETR(Config(denoising=True))
    with pytest.raises(BadInput, match="at least 1"):
        pair()[1].reset_classifier(0)
