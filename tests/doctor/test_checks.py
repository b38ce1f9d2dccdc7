"""Every planted bug is found and located, and correct models pass."""

import copy
import math

import pytest
import torch
from torch import nn

import regard
from regard.core.errors import BadInput, UnknownName
from regard.doctor import check
from regard.doctor.checks import CHECKS
from regard.models import MODELS

from . import models
from .models import LENGTHS, TOKENS, VECTORS

TINY = {
    "convs2s": {"width": 12, "hidden": 10, "encoder_layers": 2, "decoder_layers": 2, "extra_layers": ((14, 3), (6, 1))},
    "bytenet": {"width": 12, "encoder_layers": 3, "decoder_layers": 3},
    "neural_gpu": {"width": 6, "rows": 3},
    "transformer": {"width": 16, "heads": 2, "ffn": 24, "encoder_layers": 2, "decoder_layers": 2},
    "seq2seq": {"width": 12, "hidden": 10},
    "rnnsearch": {"width": 12, "hidden": 10},
    "online_alignment": {"width": 12, "hidden": 10, "layers": 1},
    "luong": {"width": 10, "hidden": 10, "layers": 2, "encoder": "lstm"},
    "gpt": {"width": 16, "heads": 2, "layers": 2, "length": 32},
    "bert": {"width": 16, "heads": 2, "layers": 2, "length": 32},
    "star_transformer": {"width": 16, "heads": 2, "layers": 2, "length": 32},
    "bp_transformer": {"width": 16, "heads": 2, "layers": 2, "ffn": 24, "neighbours": 1},
    "sac": {"width": 16, "heads": 2, "layers": 2, "length": 32, "edges": 3, "predictor_width": 8},
    "gru_to_attention": {"width": 16, "heads": 2, "layers": 2, "length": 32},
    "t5": {"width": 16, "heads": 2, "head_dim": 8, "ffn": 24, "encoder_layers": 2, "decoder_layers": 2},
}


def failed(report):
    return {finding.check for finding in report.failed}


def language(model, **settings):
    return check(model, TOKENS, lengths=LENGTHS, causal=True, **settings)


# -- correct models ----------------------------------------------------------------------------------------------------


OTHER_INPUTS = {  # models that take neither tokens nor images: settings and the checks that do not apply
    "ctc": ({"vocab": 11, "input_dim": 6, "width": 8, "hidden": 7, "layers": 2}, {"causal", "steps", "decoding"}),
    "attention_asr": ({"vocab": 13, "input_dim": 5, "conv_width": 8, "width": 6, "hidden": 8, "layers": 2}, set()),
    "conformer": (
        {"vocab": 11, "input_dim": 6, "channels": 4, "width": 8, "heads": 2, "layers": 2, "kernel": 5},
        {"causal", "steps", "decoding"},
    ),
    "hybrid_asr": (
        {"vocab": 13, "input_dim": 5, "channels": 4, "width": 8, "heads": 2, "layers": 1, "kernel": 5}
        | {"decoder_layers": 2, "decoder_heads": 2, "decoder_ffn": 10},
        set(),
    ),
    "handwriting": ({"vocab": 9, "hidden": 10, "mixtures": 3}, {"decoding"}),
    "decision_transformer": (
        {"state_dim": 3, "action_dim": 2, "width": 16, "heads": 2},
        {"empty", "steps", "decoding"},
    ),
    "elmo": (
        {"vocab": 19, "width": 8, "hidden": 12, "filters": (4, 4, 6), "char_dim": 4, "max_word_length": 12},
        {"causal", "steps", "decoding"},
    ),
    "set_transformer": (
        {"input_dim": 3, "width": 12, "heads": 2, "attention": "isab(points=3)"},
        {"causal", "steps", "decoding"},
    ),
    "image_transformer": (
        {"image_size": (4, 5), "channels": 2, "levels": 7, "width": 12, "heads": 2, "ffn": 20, "layers": 2},
        {"rows", "padding", "empty", "decoding"},  # embeddings are indexed by channel and intensity
    ),
    "image_gpt": (
        {"image_size": (4, 5), "channels": 2, "levels": 7, "width": 12, "heads": 2, "layers": 2},
        {"padding", "empty", "decoding"},  # the nearest colours
    ),
    "draw": (
        {"image_size": (5, 6), "channels": 2, "steps": 3, "hidden": 7, "latent": 4, "read": "gaussian(2)"},
        {"padding", "empty", "causal", "steps", "decoding"},
    ),
    "ntm": ({"input_dim": 3, "output_dim": 2, "cells": 5, "word": 4, "hidden": 6}, {"empty", "decoding"}),
    "dnc": ({"input_dim": 3, "output_dim": 2, "cells": 5, "word": 4, "hidden": 6}, {"empty", "decoding"}),
    "lstm": ({"input_dim": 3, "output_dim": 2, "hidden": 6, "layers": 2}, {"empty", "steps", "decoding"}),
    "deep_sets": ({"input_dim": 3, "width": 12}, {"causal", "steps", "decoding"}),
    "point_transformer": (
        {"input_dim": 4, "widths": (8, 12), "layers": (1, 1), "neighbors": 4},
        {"causal", "steps", "decoding"},
    ),
    "pointnet": ({"input_dim": 4, "widths": (8, 14), "head_widths": (10,)}, {"causal", "steps", "decoding"}),
    "graph_transformer": ({"input_dim": 3, "width": 12, "heads": 2, "layers": 2}, {"causal", "steps", "decoding"}),
    "gcn": ({"input_dim": 3, "width": 12, "dropout": 0.0, "head": "graph"}, {"causal", "steps", "decoding"}),
    "gat": ({"input_dim": 3, "heads": 2, "head_dim": 6, "head": "graph"}, {"causal", "steps", "decoding"}),
    "siren": ({"positions": "harmonics(degrees=3)", "width": 7}, {"padding", "empty", "causal", "steps", "decoding"}),
    "dmn": ({"vocab": 13, "num_classes": 5, "width": 6}, {"empty", "causal", "steps", "decoding"}),
    "story_dnc": (
        {"vocab": 13, "num_classes": 5, "width": 6, "cells": 5, "word": 4, "hidden": 6},
        {"rows", "empty", "causal", "steps", "decoding"},
    ),
    "story_bert": ({"vocab": 13, "num_classes": 5, "size": "tiny"}, {"rows", "empty", "causal", "steps", "decoding"}),
    "deformable_detr": ({"size": "tiny"}, {"padding", "empty", "causal", "steps", "decoding"}),
    "memnn": ({"vocab": 13, "num_classes": 5, "width": 7}, {"rows", "empty", "causal", "steps", "decoding"}),
    "memn2n": ({"vocab": 13, "num_classes": 5, "width": 6}, {"rows", "empty", "causal", "steps", "decoding"}),
    "show_and_tell": ({"vocab": 13, "size": "tiny"}, {"empty", "decoding"}),
    "show_attend_and_tell": ({"vocab": 13, "size": "tiny"}, {"empty", "decoding"}),
    "caption_transformer": ({"vocab": 13, "size": "tiny"}, {"empty", "decoding"}),
    "vqa_transformer": ({"size": "tiny"}, {"padding", "empty", "causal", "steps", "decoding"}),
    "detr": ({"size": "tiny"}, {"padding", "empty", "causal", "steps", "decoding"}),
    "segmenter": (
        {"image_size": (20, 24), "patch_size": 4, "width": 12, "heads": 2, "layers": 2, "num_outputs": 5},
        {"padding", "empty", "causal", "steps", "decoding"},
    ),
    "dpt": (
        {"image_size": 32, "patch_size": 8, "width": 12, "heads": 2, "layers": 4, "out_layers": (1, 2, 3, 4)}
        | {"reassemble_widths": (4, 4, 4, 6), "fusion_width": 6, "num_outputs": 5},
        {"padding", "empty", "causal", "steps", "decoding"},
    ),
    "swin_pyramid": (
        {"image_size": 28, "patch_size": 2, "width": 8, "heads": (1, 2), "layers": (2, 2), "window_size": 3}
        | {"pyramid_width": 6, "pool_sizes": (1, 2), "num_outputs": 5},
        {"padding", "empty", "causal", "steps", "decoding"},
    ),
    "unet": ({"channels": 2, "width": 3, "scales": 3}, {"padding", "empty", "causal", "steps", "decoding"}),
    "word2vec": ({"vocab": 23, "width": 6, "algorithm": "cbow"}, {"empty", "causal", "steps", "decoding"}),
}
IMAGES = {  # models that take images
    "vit": {"image_size": (20, 24), "patch_size": 4, "width": 12, "heads": 2, "layers": 2},
    "deit": {"image_size": 20, "patch_size": 8, "width": 12, "heads": 2, "layers": 2},
    "swin": {"image_size": 28, "patch_size": 2, "width": 8, "heads": (1, 2), "layers": (2, 2), "window_size": 3},
    "swinv2": {"image_size": 28, "patch_size": 2, "width": 8, "heads": (1, 2), "layers": (2, 1), "window_size": 4},
    "mvit": {"image_size": 24, "patch_size": 2, "width": 8, "heads": 1, "layers": (1, 1, 1), "kv_stride": 2},
    "cct": {"image_size": 24, "width": 12, "heads": 2, "layers": 2, "convolutions": 1},
    "resnet": {"image_size": 32, "size": "18"},
    "efficientnet_lite": {"size": "tiny", "image_size": 16},
    "learn_to_pay_attention": {"size": "tiny", "image_size": 16},
    "lr_net": {"size": "tiny", "image_size": 16},
    "ram": {"size": "tiny", "image_size": (9, 11)},
}


TEXT = [name for name in MODELS if name not in OTHER_INPUTS.keys() | IMAGES.keys()]
ENCODERS = ("star_transformer", "bp_transformer", "sac")  # with heads that have no tied weights
FIRST = {
    ("transformer", True),
    ("gpt", False),
    ("bert", True),
    ("rnnsearch", False),
    *((name, False) for name in ENCODERS),
}
CASES = [
    pytest.param(name, tied, marks=() if (name, tied) in FIRST else pytest.mark.long, id=f"{name}-{kind}")
    for name in TEXT
    for kind, tied in (("untied", False), ("tied", True))
    if not (tied and name in ENCODERS)
]


@pytest.mark.parametrize(("name", "tied"), CASES)
def test_registered_token_models_pass(name, tied):
    settings = {"readout": None} if name in ("seq2seq", "rnnsearch") else {}
    absent = {"empty"}
    if name == "bert":  # tied only in the masked-LM head; not a decoder
        settings, absent = {"head": "pretraining" if tied else "tags(5)"}, {"empty", "causal", "steps", "decoding"}
        absent |= set() if tied else {"tied"}
    elif name in ENCODERS:
        settings, absent = {"head": "tags(5)"}, {"causal", "steps", "decoding"}
    elif name != "online_alignment":  # has no tied weights
        settings["tied"] = tied
    model = regard.build(name, vocab=37, **TINY[name], **settings)
    report = check(model)
    assert report.ok, str(report)
    assert {f.check for f in report if f.state == "ok"} >= set(CHECKS) - absent
    assert model.training  # unchanged
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("name", IMAGES)
def test_registered_image_models_pass(name):
    report = check(regard.build(name, num_classes=5, channels=2, **IMAGES[name]))
    assert report.ok, str(report)
    not_applicable = {"padding", "empty", "causal", "steps", "decoding"}  # an image has none of these
    assert {f.check for f in report if f.state == "ok"} >= set(CHECKS) - not_applicable


@pytest.mark.parametrize("name", OTHER_INPUTS)
def test_registered_models_with_other_inputs_pass(name):
    settings, absent = OTHER_INPUTS[name]
    report = check(regard.build(name, **settings))
    assert report.ok, str(report)
    assert {f.check for f in report if f.state == "ok"} == set(CHECKS) - absent


def test_input_variants_pass():
    for name, settings in (
        ("handwriting", {"vocab": 0, "hidden": 10, "mixtures": 3}),  # without a text
        (
            "decision_transformer",
            {"state_dim": 3, "action_dim": 4, "width": 16, "heads": 2, "action_type": "discrete", "length": 5},
        ),
        ("ctc", {"vocab": 11, "input_dim": 6, "hidden": 7, "layers": 1, "subsampling_layers": 0}),
        ("image_transformer", {"size": "tiny", "condition_size": 3}),
    ):
        report = check(regard.build(name, **settings))
        assert report.ok, str(report)
        assert report["batch"].state == "ok"


def test_handwriting_step_that_drops_state_fails_steps(monkeypatch):
    from regard.models.handwriting import Handwriting

    plain = Handwriting.step
    monkeypatch.setattr(Handwriting, "step", lambda self, point, state: (plain(self, point, state)[0], state))
    report = check(regard.build("handwriting", **OTHER_INPUTS["handwriting"][0]))
    assert failed(report) == {"steps"}


def test_ctc_without_lengths_fails_batch_and_padding(monkeypatch):
    from regard.models.ctc import CTC

    plain = CTC.forward
    monkeypatch.setattr(CTC, "forward", lambda self, frames, frame_lengths=None: plain(self, frames))
    assert {"batch", "padding"} <= failed(check(regard.build("ctc", **OTHER_INPUTS["ctc"][0])))


def test_branch_behind_zero_scale_learns_but_two_zeros_do_not():
    class Gated(nn.Module):
        def __init__(self, dead):
            super().__init__()
            self.inner, self.gate = nn.Linear(3, 3), nn.Parameter(torch.zeros(3))
            self.second = nn.Parameter(torch.zeros(3)) if dead else None

        def forward(self, x):
            gate = self.gate if self.second is None else self.gate * self.second
            return x + gate * self.inner(x)

    report = check(Gated(False), torch.randn(2, 4, 3))
    assert report.ok, str(report)
    assert (
        report["learns"].message
        == "a gradient reaches all 3 parameter tensors (2 of them once weights that start at 0 have changed)"
    )
    report = check(Gated(True), torch.randn(2, 4, 3))  # the gradient of each zero is scaled by the other
    assert failed(report) == {"learns"}


@pytest.mark.parametrize("kind", ["rotary", "alibi", "learned"])
def test_position_kinds_pass(kind):
    model = regard.build("transformer", vocab=37, positions=kind, norm="pre", kv_heads=1, **TINY["transformer"])
    report = check(model, only=["batch", "rows", "padding", "causal", "steps"])
    assert report.ok, str(report)


def test_correct_user_module_passes():
    report = language(models.Language())
    assert report.ok, str(report)
    assert report["tied"].message == "embed.weight = head.weight"
    assert report["steps"].state == "skipped"
    assert "no start" in report["steps"].message
    report = check(models.Encode(), TOKENS, lengths=LENGTHS)
    assert report.ok, str(report)
    assert report["causal"].state == "skipped"
    assert report["empty"].state == "ok"


def test_correct_modules_of_other_shapes_pass():
    report = check(models.Recurrent(), TOKENS, lengths=LENGTHS, causal=True)
    assert report.ok, str(report)
    assert "by values only" not in report["causal"].message  # its columns were found
    report = check(models.Pooled(), {"input_ids": TOKENS}, lengths={"input_ids": LENGTHS})
    assert report.ok, str(report)
    assert "exactly 0" in report["padding"].message
    layer = nn.TransformerEncoderLayer(12, 2, 24, batch_first=True)
    report = check(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), VECTORS, lengths=LENGTHS)
    assert report.ok, str(report)
    report = check(models.Timed(), (VECTORS, torch.arange(4), torch.tensor([1, 0, 3, 4])))
    assert report.ok, str(report)
    assert report["rows"].state == "ok"
    report = check(nn.Conv2d(3, 5, 3), torch.randn(2, 3, 8, 8))
    assert report.ok, str(report)


def test_internal_float32_widens_the_tolerance():
    report = language(models.Narrow())
    assert report.ok, str(report)
    assert "float32 internally" in report["runs"].message


# -- planted bugs ------------------------------------------------------------------------------------------------------


def test_off_by_one_mask_is_located():
    report = language(models.OneAhead())
    assert "causal" in failed(report)
    assert report["causal"].message.startswith("output 0 depends on position 1 of 'tokens'")
    assert report["causal"].location == "the code of blocks.1.attend (Attend), before out"


def test_leak_between_modules_is_located():
    report = language(models.MeanOverTime())
    assert {"causal", "padding", "batch"} <= failed(report)
    assert report["causal"].location == "the code of MeanOverTime itself, before blocks.1"


def test_argmax_over_the_future_is_found_by_values():
    report = language(models.ChoiceOverTime(), only=["causal"])
    assert failed(report) == {"causal"}
    assert "no gradient" in report["causal"].message


def test_leak_without_embedding_lookup_is_found_by_values():
    report = language(models.OneHot(), only=["rows", "padding", "causal"])
    assert report["rows"].state == "skipped"
    assert "no embedding is indexed" in report["rows"].message
    assert failed(report) == {"padding", "causal"}


def test_softmax_over_padding_is_found():
    report = check(models.SeesPadding(), TOKENS, lengths=LENGTHS)
    assert {"padding", "batch"} <= failed(report)
    assert "blocks.0.attend" in report["padding"].location
    assert "blocks.0.attend" in report["batch"].location


def test_batch_coupling_is_located():
    report = check(models.Coupled(), TOKENS, lengths=LENGTHS)
    assert {"batch", "rows"} <= failed(report)
    assert report["rows"].location == "centre (MeanOverBatch)"
    assert report["batch"].location == "centre (MeanOverBatch)"


def test_batch_norm_in_training_mode_is_found():
    class Always(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(True)

    report = check(nn.Sequential(nn.Linear(12, 8), Always(8)), torch.randn(4, 12))
    assert {"repeatable", "batch", "rows"} <= failed(report)
    assert "1 (Always)" in report["rows"].location
    assert "1 (Always)" in report["repeatable"].message


def test_dropout_in_eval_mode_is_located():
    report = language(models.DropoutInEval())
    assert failed(report) == {"repeatable"}
    assert report["repeatable"].location == "dropout (FunctionalDropout)"
    assert report["batch"].state == "skipped"
    assert "repeatable" in report["batch"].message
    assert failed(language(models.AlwaysTraining())) == {"repeatable"}


def test_nonfinite_weights_are_named():
    model = models.Language()
    model.blocks[1].feed[1].weight.data[3, 2] = math.nan
    model.blocks[1].feed[1].bias.data[0] = math.inf
    report = language(model)
    assert failed(report) == {"finite"}
    assert report["finite"].location == "blocks.1.feed.1.weight"
    assert "blocks.1.feed.1.weight (1 of 240), blocks.1.feed.1.bias (1 of 20)" in report["finite"].message
    assert report["causal"].state == "skipped"


def test_untied_copy_is_found():
    model = regard.build("transformer", vocab=37, **TINY["transformer"])
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    report = check(model, only=["tied"])
    assert "head.weight should be the same tensor as embed.weight" in report["tied"].message
    assert "equal now" in report["tied"].message
    model = models.Language()
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    assert "head.weight is a copy of embed.weight" in language(model, only=["tied"])["tied"].message
    with torch.no_grad():
        model.head.weight.add_(1)
    assert language(model, only=["tied"]).ok  # nothing says that they should be tied
    report = language(model, only=["tied"], tied=[("embed.weight", "head.weight")])
    assert "with other values" in report["tied"].message
    with pytest.raises(BadInput):
        raise BadInput(language(model, only=["tied"], tied=[("embed.weight", "haed.weight")])["tied"].message)


def test_lossy_cache_fails_steps():
    report = check(models.lossy_cache_model(), only=["batch", "causal", "steps", "learns"])
    assert failed(report) == {"steps"}
    assert report["steps"].message.startswith("step 3 and one forward differ")


def test_unused_parameter_is_named():
    report = language(models.UnusedParameter())
    assert failed(report) == {"learns"}
    assert report["learns"].message == "no gradient reaches unused"


def test_modified_input_is_found():
    tokens = TOKENS.clone()
    report = check(models.ModifiesInput(), TOKENS, lengths=LENGTHS, causal=True, only=["runs"])
    assert report["runs"].message == "the model writes into its input 'tokens'"
    assert torch.equal(tokens, TOKENS)  # only the copy was modified


def test_unsaved_weight_is_named():
    report = language(models.UnsavedWeight())
    assert failed(report) == {"saved"}
    assert report["saved"].location == "blocks.1.attend.out.bias"


def test_low_precision_errors_are_found():
    report = language(models.Overflowing(), only=["bfloat16", "float16"])
    assert failed(report) == {"float16"}
    assert "not finite" in report["float16"].message
    assert failed(language(models.LowPrecisionPositions(), only=["bfloat16", "float16"])) == {"bfloat16", "float16"}


def test_nan_gradient_from_empty_row_is_found():
    report = check(models.Unmasked(), TOKENS, lengths=LENGTHS)
    assert failed(report) >= {"empty"}
    assert "gradient of the other rows is not finite" in report["empty"].message


def test_search_that_modifies_its_input_is_found():
    class Careless(type(regard.build("transformer", vocab=37, **TINY["transformer"]))):
        def start(self, source, source_lengths=None, *, capacity):
            first, state = super().start(source, source_lengths, capacity=capacity)
            source[:, -1] = 0
            return first, state

    model = Careless(regard.build("transformer", vocab=37, **TINY["transformer"]).config)
    report = check(model, only=["decoding"])
    assert report["decoding"].message == "search modifies its inputs"


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_custom_call():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = models.Encode()

        def forward(self, batch):
            return self.inner(batch["x"], batch["n"]), "and more"

    odd = Odd()
    report = check(odd, TOKENS, lengths=LENGTHS, call=lambda model, x, n: model({"x": x, "n": n})[0])
    assert report.ok, str(report)
    assert report["padding"].state == "ok"


def test_model_is_not_changed():
    model = models.Language().train()
    before = copy.deepcopy(model.state_dict())
    seed = torch.get_rng_state()
    language(model)
    assert model.training
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(seed, torch.get_rng_state())


def test_unknown_model_without_inputs_gets_weight_checks_only():
    report = check(models.Language())
    assert report.ok
    assert report["finite"].state == "ok"
    assert "pass inputs=" in report["batch"].message


def test_model_that_cannot_run_says_why():
    report = check(nn.Linear(3, 4), torch.randn(2, 5))
    assert report["runs"].state == "failed"
    assert "mat1 and mat2" in report["runs"].message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengths": torch.tensor([9, 4])}, "expected 4 numbers"),
        ({"lengths": torch.tensor([9, 4, 7, 10])}, "from 1 to 9"),
        ({"lengths": [LENGTHS, None]}, "2 lengths for 1 inputs"),
        ({"lengths": {"tokns": LENGTHS}}, "the inputs are tokens"),
        ({"causal": "target"}, "the inputs are tokens"),
        ({"causal": 3}, "numbered from 0 to 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mismatched_arguments_are_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        check(models.Language(), TOKENS, **settings)


def test_unknown_check_suggests_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'causal'"):
        check(models.Language(), TOKENS, only=["casual"])
    with pytest.raises(UnknownName, match="did you mean 'batch'"):
        check(models.Language(), TOKENS, only=["batch"])["bach"]


def test_report_as_text_and_json():
    report = language(models.UnusedParameter(), only=["finite", "learns", "steps"])
    assert str(report).splitlines()[1:] == [
        f"ok        finite       {report['finite'].message}",
        "FAILED    learns       no gradient reaches unused",
        "skipped   steps        the model has no start and no step",
        "1 failed (learns), 1 ok, 1 skipped",
    ]
    assert not report.ok
    values = report.to_json()
    assert values["ok"] is False
    assert [one["state"] for one in values["findings"]] == ["ok", "failed", "skipped"]
