"""Swin pyramid: stages equal to transformers' Swin backbone, and the whole to its UPerNet, in value and gradient."""

import pytest
import torch

from regard.models.swin_pyramid import Config, SwinPyramid
from regard.weights.hf import swin as hf_swin
from regard.weights.table import Row, import_state_dict, linear, same

from .harness import exported_gradients, shaken

transformers = pytest.importorskip("transformers")

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def rows(ours):
    """Which tensor of transformers' UPerNet is which of ours; Swin's by its own table."""
    found = []
    for row in hf_swin.table(ours.backbone.config):
        theirs = row.external if isinstance(row.external, tuple) else (row.external,)
        named = tuple(f"backbone.swin.{name}" for name in theirs)
        internal = row.internal and f"backbone.{row.internal}"
        found.append(Row(named if len(named) > 1 else named[0], internal, row.op, row.reason))
    found += [row for n in range(3) for row in linear(f"backbone.hidden_states_norms.stage{n + 1}", f"norms.{n}")]
    pairs = {f"psp_modules.{n}.1": f"pools.{n}" for n in range(2)} | {"bottleneck": "context"}
    pairs |= {f"lateral_convs.{n}": f"laterals.{n}" for n in range(2)} | {
        f"fpn_convs.{n}": f"smooth.{n}" for n in (0, 1)
    }
    for theirs, ours in (pairs | {"fpn_bottleneck": "join"}).items():
        found.append(Row(f"decode_head.{theirs}.conv.weight", f"{ours}.conv.weight", same))
        found += [Row(f"decode_head.{theirs}.batch_norm.{part}", f"{ours}.norm.{part}", same) for part in NORM]
    return found + linear("decode_head.classifier", "head")


def pair():
    torch.manual_seed(0)
    backbone = transformers.SwinConfig(
        image_size=48, patch_size=2, embed_dim=12, depths=(2, 3, 2), num_heads=(2, 3, 4), window_size=4,
        out_features=["stage1", "stage2", "stage3"], attn_implementation="eager",
    )  # fmt: skip
    config = transformers.UperNetConfig(
        backbone_config=backbone, hidden_size=10, pool_scales=[1, 2], num_labels=5, use_auxiliary_head=False
    )
    theirs = shaken(transformers.UperNetForSemanticSegmentation(config), 0.2)
    with torch.no_grad():
        for name, value in theirs.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                value.add_(torch.rand_like(value))
    ours = Config(
        num_outputs=5, image_size=48, patch_size=2, width=12, layers=(2, 3, 2), heads=(2, 3, 4), window_size=4,
        pyramid_width=10, pool_sizes=(1, 2), padding="attend",
    )  # fmt: skip
    return theirs, SwinPyramid(ours).double().eval()


def loaded():
    theirs, ours = pair()
    import_state_dict(rows(ours), hf_swin.normalize_keys(theirs.state_dict()), ours)
    return theirs, ours


def test_stage_outputs_equal_the_backbone_of_transformers():
    theirs, ours = loaded()
    for size in ((48, 48), (44, 58)):
        images = torch.randn(2, 3, *size).double()
        with torch.no_grad():
            wanted = theirs.backbone(images).feature_maps
            for mine, each in zip(ours.features(images), wanted, strict=True):
                torch.testing.assert_close(mine, each, rtol=1e-9, atol=1e-9)
                assert each.std() > 0.1


def test_logits_and_gradients_equal_upernet_of_transformers():
    theirs, ours = loaded()
    images = torch.randn(2, 3, 48, 64).double()
    wanted, found = theirs(images).logits, ours(images)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    pull = torch.randn_like(wanted)
    (wanted * pull).sum().backward()
    (found * pull).sum().backward()
    mine = exported_gradients(rows(ours), ours)
    gradients = hf_swin.normalize_keys({n: p.grad for n, p in theirs.named_parameters() if p.grad is not None})
    assert len(gradients) > 100
    for name, gradient in gradients.items():
        torch.testing.assert_close(mine[name], gradient, rtol=1e-7, atol=1e-8, msg=name)
