"""DPT of transformers and ours, from the same weights: values, gradients, maps, folders both ways."""

import pytest
import torch

from regard.core.errors import Unsupported
from regard.models.dpt import DPT
from regard.weights.hf import dpt as hf_dpt
from regard.weights.table import import_state_dict

from .harness import gradients_equal, maps_equal, round_trip, shaken

transformers = pytest.importorskip("transformers")

SHAPE = {
    "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 64,
    "patch_size": 16, "backbone_out_indices": [0, 2, 3, 4], "neck_hidden_sizes": [8, 12, 16, 20],
    "fusion_hidden_size": 10, "layer_norm_eps": 1e-6,
}  # fmt: skip
BIT = {
    "model_type": "bit", "global_padding": "same", "layer_type": "bottleneck", "depths": [1, 2, 1],
    "hidden_sizes": [128, 256, 512], "embedding_size": 32, "out_features": ["stage1", "stage2", "stage3"],
    "embedding_dynamic_padding": True,
}  # fmt: skip
HYBRID = {
    "is_hybrid": True, "backbone_config": BIT, "backbone_featmap_shape": [1, 512, 2, 2], "image_size": 32,
    "neck_hidden_sizes": [128, 256, 16, 20], "reassemble_factors": [1, 1, 1, 0.5],
}  # fmt: skip
CASES = {
    "depth": (hf_dpt.DEPTH, {}),
    "depth-ignore-norm": (hf_dpt.DEPTH, {"readout_type": "ignore", "use_batch_norm_in_fusion_residual": True}),
    "depth-hybrid": (hf_dpt.DEPTH, HYBRID),
    "segmentation-add": (hf_dpt.SEGMENTATION, {"num_labels": 5, "readout_type": "add"}),
    "segmentation-norm": (hf_dpt.SEGMENTATION, {"num_labels": 5, "use_batch_norm_in_fusion_residual": True}),
}


def pair(case):
    named, settings = CASES[case]
    torch.manual_seed(0)
    config = transformers.DPTConfig(**SHAPE | settings, attn_implementation="eager")
    theirs = shaken(getattr(transformers, named)(config))
    with torch.no_grad():  # statistics away from 0 and 1, and a last ReLU that is open
        for name, value in theirs.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                value.add_(torch.rand_like(value))
        if named == hf_dpt.DEPTH:
            theirs.head.head[4].bias.add_(1e4 if theirs.config.is_hybrid else 10)
    config = hf_dpt.import_config(theirs.config.to_dict() | {"architectures": [named]})
    ours = DPT(config).double().eval()
    import_state_dict(hf_dpt.table(config), theirs.state_dict(), ours)
    return theirs, ours


def answer(theirs, images):
    out = theirs(images)
    return out.logits if "logits" in out else out.predicted_depth[:, None]


def test_outputs_gradients_and_maps_equal_the_peers():
    for case in CASES:
        theirs, ours = pair(case)
        images = torch.randn(2, 3, ours.config.image_size, ours.config.image_size).double()
        wanted, found = answer(theirs, images), ours(images)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9, msg=lambda said, case=case: f"{case}: {said}")
        assert wanted.std() > 0.05, case
        pull = torch.randn_like(wanted)
        (wanted * pull).sum().backward()
        (found * pull).sum().backward()
        compared = gradients_equal(theirs, hf_dpt.table(ours.config), ours, rtol=1e-7, atol=1e-8)
        assert compared > 100, case
        attentions = theirs(images, output_attentions=True).attentions
        maps = {f"backbone.encoder.blocks.{n}.mix": each for n, each in enumerate(attentions)}
        maps_equal(maps, ours, images)


def test_images_of_another_size_equal_the_peers():
    """Positions are interpolated; a hybrid of transformers reads its own size only."""
    for case in ("depth", "segmentation-norm"):
        theirs, ours = pair(case)
        for size in (32, 96):
            images = torch.randn(1, 3, size, size).double()
            with torch.no_grad():
                torch.testing.assert_close(ours(images), answer(theirs, images), rtol=1e-9, atol=1e-9)


def test_import_then_export_is_exact_but_for_what_nothing_reads():
    for case in CASES:
        theirs, ours = pair(case)
        unread = ("auxiliary_head.", "neck.fusion_stage.layers.0.residual_layer1.")
        state = {name: value for name, value in theirs.state_dict().items() if not name.startswith(unread)}
        round_trip(state, hf_dpt.table(ours.config), ours)


def test_folders_are_exchanged_with_transformers(tmp_path):
    for case in ("depth", "depth-hybrid", "segmentation-norm"):
        theirs, ours = pair(case)
        theirs, ours, side = theirs.float(), ours.float(), ours.config.image_size
        images = torch.randn(1, 3, side, side)
        theirs.save_pretrained(tmp_path / f"{case}-theirs")
        loaded, task = hf_dpt.load(tmp_path / f"{case}-theirs")
        assert loaded.config == ours.config
        assert task.get("labels") == ([f"LABEL_{n}" for n in range(5)] if "segmentation" in case else None)
        assert task["preprocess"]["size"] == (side, side)
        hf_dpt.save(tmp_path / f"{case}-ours", ours)
        named, _ = CASES[case]
        again, told = getattr(transformers, named).from_pretrained(tmp_path / f"{case}-ours", output_loading_info=True)
        assert not told["unexpected_keys"]
        assert all("layers.0.residual_layer1" in name for name in told["missing_keys"])
        with torch.no_grad():
            wanted = answer(theirs, images)
            far = 1e-4 * float(wanted.abs().max())  # of float32
            torch.testing.assert_close(loaded(images), wanted, rtol=0, atol=far)
            torch.testing.assert_close(answer(again.eval(), images), wanted, rtol=0, atol=far)


def test_what_the_format_cannot_say_is_refused():
    raw = transformers.DPTConfig(**SHAPE).to_dict() | {"architectures": [hf_dpt.DEPTH]}
    for change, said in (
        ({"add_projection": True}, "add_projection"),
        ({"reassemble_factors": [4, 2, 1, 1]}, "reassemble_factors"),
        ({"use_bias_in_fusion_residual": False}, "use_bias"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"backbone_config": {"model_type": "dinov2"}}, "backbone"),
        ({"architectures": ["DPTModel"]}, "DPTModel"),
        (HYBRID | {"backbone_config": BIT | {"global_padding": None}}, "global_padding"),
    ):
        with pytest.raises(Unsupported, match=said):
            hf_dpt.import_config(raw | change)
    for change in ({"patch_size": 8}, {"image_size": 48}):  # of which transformers makes maps of another size
        with pytest.raises(Unsupported, match=next(iter(change))):
            hf_dpt.table(hf_dpt.import_config(raw | change))


@pytest.mark.long
@pytest.mark.parametrize("size", ["large", "hybrid"])
def test_published_shapes_equal_the_peers(size):
    from regard.models.dpt import SIZES, Config

    config = Config(**SIZES[size] | {"positions": hf_dpt.POSITIONS})
    torch.manual_seed(0)
    raw = hf_dpt.export_config(config)
    theirs = transformers.DPTForDepthEstimation(transformers.DPTConfig(**raw)).eval()
    ours = DPT(hf_dpt.import_config(raw)).eval()
    import_state_dict(hf_dpt.table(ours.config), theirs.state_dict(), ours)
    images = torch.randn(1, 3, 384, 384)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), answer(theirs, images), rtol=1e-3, atol=1e-4)
