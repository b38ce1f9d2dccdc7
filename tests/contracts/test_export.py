"""The laws of leaving Python, over the table of models: a program that torch.export or ONNX makes of one example
answers as the model does, for batches of other sizes, texts of other lengths and images of other sizes."""

import re
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

import pytest
import torch
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves

from regard.cost.meta_model import InputShape, make_batch
from regard.models import MODELS, build
from regard.models.detr import backbone
from tests.long_params import rest_is_long

# What a program of torch.export keeps as its example had it, beside the batch that is free in all of them, and why.
UNROLLED = "length: its loop over the tokens is written out"
FIXED = {
    "rnnsearch": UNROLLED,
    "luong": UNROLLED,
    "online_alignment": UNROLLED,
    "neural_gpu": UNROLLED,
    "ntm": UNROLLED,
    "dnc": UNROLLED,
    "elmo": UNROLLED,
    "handwriting": UNROLLED,
    "dmn": UNROLLED,
    "story_dnc": UNROLLED,
    "memnn": UNROLLED,
    "attention_asr": UNROLLED,
    "conformer": "length: a program made of several subsampled frames takes all lengths but that of one",
    "hybrid_asr": "length: as for conformer",
    "ctc": "length: as for conformer",
    "show_and_tell": UNROLLED,
    "show_attend_and_tell": UNROLLED,
    "image_transformer": "size: that of its images is part of the model",
    "image_gpt": "size: that of its images is part of the model",
    "draw": "size: that of its images is part of the model",
    "point_transformer": "length: the loop over the points that a stage keeps is written out",
    "siren": "length: a place has none, but two coordinates",
    "bp_transformer": "length: its levels, and who sees whom, depend on it",
    "swin": "size: where windows end, and whether they are shifted, depends on it",
    "swinv2": "size: where windows end, and whether they are shifted, depends on it",
    "swin_pyramid": "size: as for swin",
    "efficientnet_lite": "size: the padding of a convolution with a stride depends on it",
    "learn_to_pay_attention": "size: whether the last of its grids has a single cell depends on it",
    "caption_transformer": "size: as for efficientnet_lite, its encoder",
    "dpt": "size: whether a map is resized to the coarser one depends on it",
}
# In ONNX a pooling is one node for any size; a loop of ours is written out there too.
FREE_IN_ONNX = {"ctc", "learn_to_pay_attention", "conformer", "hybrid_asr"}
NOT_IN_ONNX = {
    "elmo": "its LSTM narrows what it says, which ONNX's has no part for",
    "dnc": (SORTED := "cells are sorted by usage with ties in order, and ONNX has no stable sort"),
    "story_dnc": SORTED,
}

ONE, BOTH = {"layers": 1}, {"encoder_layers": 1, "decoder_layers": 1}
SMALL = dict.fromkeys(
    (
        *("gpt", "bert", "star_transformer", "bp_transformer", "sac", "gru_to_attention", "decision_transformer"),
        *("elmo", "ctc", "attention_asr", "cct", "vit", "deit", "image_transformer", "image_gpt"),
        "segmenter",
    ),
    ONE,
)
SMALL |= dict.fromkeys(("transformer", "t5", "convs2s", "bytenet"), BOTH)
SMALL |= {"swin": {"heads": (2, 2), "layers": (2, 2)}, "resnet": {"layers": (1, 1)}, "mvit": {"layers": (1, 1)}}
# of three frames two are left: a size of one in an example would be taken for a constant
SMALL |= {name: {"layers": 1, "subsampling_layers": 1} for name in ("conformer", "hybrid_asr", "ctc")}
SMALL["lr_net"] = SMALL["resnet"]
SMALL |= {"swinv2": SMALL["swin"], "neural_gpu": {"length_offset": 1.0, "layers": 1}, "handwriting": {"layers": 1}}
SMALL["elmo"] = {"layers": 1, "filters": (8, 8), "max_word_length": 6, "highway_layers": 1}
SMALL |= {name: {"backbone": backbone("tiny", layers=(1, 1), norm="batch")} for name in ("detr", "deformable_detr")}
PICTURES = ("detr", "deformable_detr", "image_transformer", "vit", "deit", "swin", "swinv2", "mvit", "cct", "resnet")
PICTURES += ("unet", "segmenter", "dpt", "swin_pyramid", "efficientnet_lite", "lr_net", "learn_to_pay_attention")
PICTURES += ("draw", "image_gpt", "vqa_transformer", "ram")
EARLY = ("gpt", "vit")  # of all shapes in the default run; the others with the long ones
BATCHES = (*EARLY, "rnnsearch", "resnet")  # of all batches in the default run

pytestmark = pytest.mark.usefixtures("unchecked")


def tiny(name, **settings):
    """A small one in float64, away from its initial weights."""
    words = {"vocab": 30} if "vocab" in import_module(MODELS[name][0]).Config.__dataclass_fields__ else {}
    torch.manual_seed(3)
    model = build(name, size="tiny", **words | SMALL.get(name, {}) | settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def asked(model, rows, length=3, image=(32, 32)):
    """Ragged rows of what it reads, by name; the first is full."""
    takes = signature(model.forward).parameters
    if "centres" in takes:
        return {"centres": torch.randint(30, (rows, length))}
    image = None if model.__class__.__name__ in ("DRAW", "ImageTransformer") else image  # its own
    batch = make_batch(model, InputShape(rows, length, source=length + 1, target=length, image=image))
    if "lengths" in takes:
        batch["lengths"] = torch.full((rows,), length)
    for name, found in batch.items():
        if name.endswith("lengths"):
            batch[name] = torch.cat([found[:1], torch.randint(1, int(found[0]) + 1, (rows - 1,))])
        elif name == "timesteps":
            batch[name] = found + torch.arange(length)
        elif found.is_floating_point():
            batch[name] = torch.randn(found.shape, dtype=next(model.parameters()).dtype)
        else:
            batch[name] = torch.randint(3, 10, found.shape) if name != "words" else torch.randint(2, found.shape)
    return batch


def free(batch, *axes):
    """The axes that a program shall leave open."""
    spec = {name: {0: Dim.DYNAMIC} for name in batch}
    for name, found in batch.items():
        if "length" in axes and found.ndim > 1 and name != "spelled":
            spec[name] |= {1: Dim.DYNAMIC}
        if "length" in axes and name == "edges":
            spec[name] |= {2: Dim.DYNAMIC}
        if "size" in axes and name == "images":
            spec[name] |= {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    return spec


def others(axes):
    """Shapes that are not the example's."""
    shapes = [{"rows": 1}, {"rows": 5}]
    if "length" in axes:
        shapes += [{"rows": 2, "length": 9}, {"rows": 5, "length": 2}]
    if "size" in axes:
        shapes += [{"rows": 2, "image": (48, 64)}, {"rows": 1, "image": (40, 24)}]
    return shapes


def programmed(model, axes):
    example = asked(model, 3)
    with torch.no_grad():
        return export(model, (), example, dynamic_shapes=free(example, *axes)).module()


def kind(name):
    return "size" if name in PICTURES else "length"


def all_axes(name):
    return ("batch",) if name in FIXED else ("batch", kind(name))


def holds(model, axes):
    run = programmed(model, axes)
    for shape in others(axes):
        batch = asked(model, **shape)
        with torch.no_grad():
            wanted, found = tree_leaves(model(**batch)), tree_leaves(run(**batch))
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BATCHES else pytest.mark.long) for name in MODELS]
)
def test_an_exported_program_answers_other_batches_as_the_model_does(name):
    holds(tiny(name), ("batch",))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EARLY else pytest.mark.long) for name in MODELS if name not in FIXED],
)
def test_an_exported_program_answers_other_lengths_or_sizes_as_the_model_does(name):
    holds(tiny(name), all_axes(name))


PARTS = {
    "mvit-token": ("mvit", {"class_token": True, "positions": "added"}),
    "vit-mean": ("vit", {"num_prefix_tokens": 0, "pool": "mean"}),
    "vit-registers": ("vit", {"num_prefix_tokens": 5}),
    "gpt-modern": (
        "gpt",
        {"norm_kind": "rms", "positions": "rotary", "feedforward": "swiglu", "qk_norm": "rms", "kv_heads": 2},
    ),
    "transformer-alibi": ("transformer", {"positions": "alibi", "norm": "pre"}),
    "luong-free": ("luong", {"decoder": "no_input_feeding", "aligner": "location"}),
}


@pytest.mark.parametrize("variant", rest_is_long(PARTS, "gpt-modern", "vit-registers"))
def test_other_parts_leave_the_batch_free_too(variant):
    name, settings = PARTS[variant]
    holds(tiny(name, **settings), ("batch",))


@pytest.mark.parametrize("name", [name for name in FIXED if kind(name) == "length"])
@pytest.mark.long
def test_what_is_said_to_be_fixed_is_fixed(name):
    """When one of them becomes free, the table and the page are to be written anew."""
    with pytest.raises(Exception, match=r"(?i)constraint|guard|specialized"):
        holds(tiny(name), ("batch", "length"))


def test_only_models_of_the_table_are_excepted():
    assert set(FIXED) | set(NOT_IN_ONNX) | FREE_IN_ONNX | set(PICTURES) | set(SMALL) <= set(MODELS)


# -- ONNX --------------------------------------------------------------------------------------------------------------

needs_onnx = pytest.mark.skipif(
    any(find_spec(part) is None for part in ("onnx", "onnxscript", "onnxruntime")), reason="pip install 'regard[onnx]'"
)


def agrees(name, axes, folder):
    """The same law for a graph that ONNX Runtime runs, in float32."""
    from onnxruntime import InferenceSession

    model = tiny(name).float()
    example = asked(model, 3)
    with torch.no_grad():
        made = torch.onnx.export(
            model, (), folder / "model.onnx", kwargs=example, dynamo=True, dynamic_shapes=free(example, *axes),
            verbose=False,
        )  # fmt: skip
    assert made is not None
    session = InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    takes = {each.name for each in session.get_inputs()}  # what changes nothing is left out: lengths of a causal model
    for shape in others(axes):
        batch = asked(model, **shape)
        with torch.no_grad():
            wanted = [x for x in tree_leaves(model(**batch)) if x is not None]
        found = session.run(None, {key: value.numpy() for key, value in batch.items() if key in takes})
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(torch.from_numpy(b), a, rtol=1e-4, atol=1e-4)


def onnx_axes(name):
    return ("batch", kind(name)) if name in FREE_IN_ONNX else all_axes(name)


@needs_onnx
@pytest.mark.parametrize("name", ["bert"])
def test_a_graph_of_onnx_answers_other_batches_as_the_model_does(name, tmp_path):
    agrees(name, ("batch",), tmp_path)


@needs_onnx
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_IN_ONNX])
def test_a_graph_of_onnx_answers_other_batches_and_shapes_as_the_model_does(name, tmp_path):
    agrees(name, onnx_axes(name), tmp_path)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_says_which_axes_are_free():
    page = (Path(__file__).parents[2] / "docs" / "how" / "runtimes.md").read_text(encoding="utf-8")
    page = page[page.index("\n## Dynamic axes") :]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]*) \| ([^|]*) \|", page, re.MULTILINE)
    said = {name: cells for names, *cells in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(said) == set(MODELS)
    for name, (program, graph) in said.items():
        assert program == ", ".join(all_axes(name)), name
        assert graph == ("no" if name in NOT_IN_ONNX else ", ".join(onnx_axes(name))), name
