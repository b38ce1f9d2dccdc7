"""DPT of Hugging Face transformers, import and export: depth and segmentation, ViT and hybrid.

    transformers                                        Regard
    dpt.embeddings, dpt.encoder                         backbone (as in hf_vit)
    dpt.embeddings.backbone.bit, projection             backbone.stem.conv, norm, stages, embed
    neck.reassemble_stage.readout_projects, layers      reassemble.{}.read, project, resize
    neck.convs.{}                                       narrow.{}
    neck.fusion_stage.layers.{}, coarsest first         fusion.{}, finest first
    DPTForDepthEstimation, DPTForSemanticSegmentation   num_outputs 1, num_outputs K

    model, task = hf_dpt.load(folder)        config.json and model.safetensors, perhaps preprocessor_config.json
    hf_dpt.save("mine", model)               DPTForDepthEstimation.from_pretrained("mine") reads it

transformers reads square images only; where 32 divides their sides, both give the same numbers, and other training
sizes are refused, as are other patches than 16 x 16, of which transformers makes maps of another size. The auxiliary
head and one residual unit of the coarsest fusion, which no output reads, are dropped; from_pretrained names the latter
as new.
Backbones from other models (DINOv2, BEiT, Swin v2) are not supported.

Ranftl, Bochkovskiy, Koltun: Vision Transformers for Dense Prediction. ICCV 2021. arXiv:2103.13413
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.core.shapes import Tensor, pair
from regard.core.spec import Spec
from regard.models.dpt import DPT, Config
from regard.weights.checkpoint_formats import (
    add_zero_biases,
    check_requirements,
    count_labels,
    fill_defaults,
    label_maps,
    label_names,
    load_image_folder,
    processor_colours,
    read_processor,
    requires_softmax,
    save_for_transformers,
)
from regard.weights.hf.vit import check_biases
from regard.weights.table import Row, linear, same, stack, view

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
DEPTH, SEGMENTATION = "DPTForDepthEstimation", "DPTForSemanticSegmentation"


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = [*_backbone_rows(config), *_stem_rows(config)]
    first = 2 if _is_hybrid(config) else 0
    for n in range(4):
        rows.append(Row(f"neck.convs.{n}.weight", f"narrow.{n}.weight", same))
        if n >= first:
            there, here = f"neck.reassemble_stage.layers.{n}", f"reassemble.{n - first}"
            rows += linear(f"{there}.projection", f"{here}.project")
            rows += linear(f"{there}.resize", f"{here}.resize") if n != 2 else []
            if config.readout == "project":
                rows += linear(f"neck.reassemble_stage.readout_projects.{n}.0", f"{here}.read")
        rows += _fusion_rows(config, n)
    return rows + _head_rows(config)


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    named = next(iter(external.get("architectures") or ()), DEPTH)
    if named not in (DEPTH, SEGMENTATION):
        raise Unsupported(f"{named} is not supported; choose one of: {DEPTH}, {SEGMENTATION}")
    fixed = FIXED | (DEPTH_FIXED if named == DEPTH else {})
    raw = fill_defaults(external, "dpt", DEFAULTS, fixed)
    hybrid, norm = bool(raw["is_hybrid"]), bool(raw["use_batch_norm_in_fusion_residual"])
    bias = raw["use_bias_in_fusion_residual"]
    if bias is not None and bias == norm:
        raise Unsupported(f"use_bias_in_fusion_residual={bias} with batch norm {norm} in config.json is not supported")
    if not hybrid and raw["backbone_config"] is not None:
        raise Unsupported("a DPT with the backbone of another model (backbone_config) is not supported")
    factors = list(raw["reassemble_factors"])
    if len(factors) != 4 or factors[2 if hybrid else 0 :] != [4, 2, 1, 0.5][2 if hybrid else 0 :]:
        raise Unsupported(f"reassemble_factors={factors} in config.json must be [4, 2, 1, 0.5]")
    after = [index + 1 for index in raw["backbone_out_indices"]]
    shape = _import_stem(raw) if hybrid else {"patch_size": raw["patch_size"]}
    values = {field: raw[name] for field, name in FIELDS.items()} | shape
    values |= {
        "num_outputs": 1 if named == DEPTH else count_labels(raw),
        "out_layers": after[2:] if hybrid else after,
        "fusion_norm": norm,
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    hybrid, depth = _is_hybrid(config), config.num_outputs == 1
    after = [n - 1 for n in config.out_layers]
    return {
        "model_type": "dpt",
        "architectures": [DEPTH if depth else SEGMENTATION],
        **{name: getattr(config, field) for field, name in FIELDS.items()},
        "intermediate_size": config.ffn or 4 * config.width,
        "patch_size": 16 if hybrid else config.patch_size,
        "is_hybrid": hybrid,
        "backbone_out_indices": [0, 1, *after] if hybrid else after,
        "reassemble_factors": [1, 1, 1, 0.5] if hybrid else [4, 2, 1, 0.5],
        "use_batch_norm_in_fusion_residual": config.fusion_norm,
        "use_auxiliary_head": False,
        **(_export_stem(config) if hybrid else {}),
        **({} if depth else label_maps(config.num_outputs)),
        **FIXED,
    }


def load(folder: str | Path) -> tuple[DPT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, _import_config, DPT, table, _preprocessing, _add_missing_biases)


def save(folder: str | Path, what: DPT) -> None:
    """Write a folder for transformers, atomically."""
    save_for_transformers(folder, what, DPT, export_config, table)


def _import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    check_biases(raw, state)
    return import_config(raw)


def _add_missing_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return add_zero_biases(state, *(f"attention.attention.{name}" for name in ("query", "key", "value")))


def _preprocessing(folder: Path, raw: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Return the task, the labels of a segmentation, and how images are shown."""
    how = read_processor(folder, PROCESSOR, {"size": pair(config.image_size)[0]})
    for name in ("do_pad", "do_center_crop"):
        if how.get(name):
            raise Unsupported(f"{name}=True in preprocessor_config.json is not supported; images are shown whole")
    size = how["size"] if isinstance(how["size"], Mapping) else dict.fromkeys(("height", "width"), how["size"])
    if size.keys() != {"height", "width"}:
        raise Unsupported(f"size={size!r} in preprocessor_config.json is not supported; expected height and width")
    sides, multiple = (int(size["height"]), int(size["width"])), int(how["ensure_multiple_of"])
    if any(side % multiple for side in sides):
        raise Unsupported(f"size={size!r} in preprocessor_config.json must be a multiple of {multiple=}")
    keeps = bool(how["keep_aspect_ratio"])
    preprocess = {
        "size": sides,
        "channels": config.channels,
        "crop_mode": "ratio" if keeps else "squash",
        "multiple": multiple if keeps else 1,
        **processor_colours(how, config.channels),
    }
    if config.num_outputs == 1:
        return {"name": "depth_estimation", "preprocess": preprocess}
    labels = label_names(raw, config.num_outputs)
    return {"name": "semantic_segmentation", "labels": labels, "preprocess": preprocess}


# -- rows --------------------------------------------------------------------------------------------------------------


def _backbone_rows(config: Config) -> list[Row]:
    there, here = "dpt.encoder.layer.{}", "backbone.encoder.blocks.{}"
    by_head = stack("three (h d) ... -> (h three d) ...", three=3, h=config.heads)
    return [
        Row("dpt.embeddings.cls_token", "backbone.prefix_tokens", view("one p c -> (one p) c", one=1)),
        Row("dpt.embeddings.position_embeddings", "backbone.positions.table", view("one n c -> (one n) c", one=1)),
        *linear(f"{there}.layernorm_before", f"{here}.mix_norm"),
        *(
            Row(
                tuple(f"{there}.attention.attention.{name}.{part}" for name in ("query", "key", "value")),
                f"{here}.mix.project.qkv.{part}",
                by_head,
            )
            for part in ("weight", "bias")
        ),
        *linear(f"{there}.attention.output.dense", f"{here}.mix.join.out"),
        *linear(f"{there}.layernorm_after", f"{here}.feed_norm"),
        *linear(f"{there}.intermediate.dense", f"{here}.feed.up"),
        *linear(f"{there}.output.dense", f"{here}.feed.down"),
        *linear("dpt.layernorm", "backbone.encoder.norm"),
    ]


def _stem_rows(config: Config) -> list[Row]:
    if not _is_hybrid(config):
        return linear("dpt.embeddings.patch_embeddings.projection", "backbone.stem.embed")
    bit, stem = "dpt.embeddings.backbone.bit", "backbone.stem"
    there, here = f"{bit}.encoder.stages.{{s}}.layers.{{b}}", f"{stem}.stages.{{s}}.blocks.{{b}}"
    pairs = [(f"{there}.conv{n}", f"{here}.conv{n}") for n in (1, 2, 3)]
    norms = [(f"{there}.norm{n}", f"{here}.norm{n}") for n in (1, 2, 3)]
    pairs += [(f"{bit}.embedder.convolution", f"{stem}.conv"), (f"{there}.downsample.conv", f"{here}.down.conv")]
    norms += [(f"{bit}.embedder.norm", f"{stem}.norm"), (f"{there}.downsample.norm", f"{here}.down.norm")]
    return [
        *linear("dpt.embeddings.projection", f"{stem}.embed"),
        *(Row(f"{external}.weight", f"{internal}.weight", same) for external, internal in pairs),
        *(row for external, internal in norms for row in linear(external, internal)),
    ]


def _fusion_rows(config: Config, n: int) -> list[Row]:
    """Return the rows of fusion n, finest first; transformers counts from the coarsest."""
    there, here = f"neck.fusion_stage.layers.{3 - n}", f"fusion.{n}"
    rows = linear(f"{there}.projection", f"{here}.project")
    for theirs, ours in (("residual_layer1", "skip"), ("residual_layer2", "merge")):
        for k in (1, 2):
            parts = [(f"convolution{k}.weight", f"conv{k}.weight")]
            parts += [] if config.fusion_norm else [(f"convolution{k}.bias", f"conv{k}.bias")]
            parts += [(f"batch_norm{k}.{p}", f"norm{k}.{p}") for p in NORM] if config.fusion_norm else []
            for external, internal in parts:
                name = f"{there}.{theirs}.{external}"
                unread = n == 3 and ours == "skip"
                rows.append(
                    Row(name, None, reason="the coarsest map is added to none")
                    if unread
                    else Row(name, f"{here}.{ours}.{internal}", same)
                )
    return rows


def _head_rows(config: Config) -> list[Row]:
    if config.num_outputs == 1:
        return [row for n in (1, 2, 3) for row in linear(f"head.head.{2 * n - 2}", f"head.conv{n}")]
    extra = [f"1.{part}" for part in NORM] + ["0.weight", "4.weight", "4.bias"]
    return [
        Row("head.head.0.weight", "head.conv.weight", same),
        *(Row(f"head.head.1.{part}", f"head.norm.{part}", same) for part in NORM),
        *linear("head.head.4", "head.classify"),
        *(Row(f"auxiliary_head.head.{part}", None, reason="auxiliary head of training") for part in extra),
    ]


# -- configs -----------------------------------------------------------------------------------------------------------


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    stem = Spec.parse(config.stem) if isinstance(config.stem, str) else None
    hybrid = stem is not None and stem.name == "hybrid" and not stem.args
    image = pair(config.image_size)
    needed = {
        "attention": requires_softmax(config),
        "positions": (POSITIONS, config.positions == POSITIONS),
        "backbone": (None, config.backbone is None),
        "stem": ("patches' or 'hybrid(layers=...)", config.stem == "patches" or hybrid),
        "patch_size": (1, config.patch_size == 1) if hybrid else (16, pair(config.patch_size) == (16, 16)),
        "readout": ("project", not hybrid or config.readout == "project"),
        "image_size": ("a square of a multiple of 32 pixels", image[0] == image[1] and image[0] % 32 == 0),
    }
    check_requirements("transformers' DPT", config, needed)


def _is_hybrid(config: Config) -> bool:
    return config.stem != "patches"


def _import_stem(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a hybrid stem from the backbone's part of a config.json."""
    bit = {**BIT, **(raw["backbone_config"] or {})}
    base, widths = bit["embedding_size"], list(bit["hidden_sizes"])[: len(bit["depths"])]
    bit["global_padding"] = str(bit["global_padding"]).lower()  # transformers writes "SAME"
    wrong = [name for name, value in BIT_FIXED.items() if bit[name] != value]
    if wrong or widths != [base * 4 * 2**n for n in range(len(widths))] or raw["patch_size"] != 16:
        what = ", ".join(f"{name}={bit[name]!r}" for name in wrong) or f"patch_size={raw['patch_size']}, {widths=}"
        raise Unsupported(f"the backbone of a hybrid DPT must be a ResNet of Big Transfer as published; got {what}")
    layers = tuple(bit["depths"])
    return {"patch_size": 1, "stem": f"hybrid(layers={layers}" + (f", base={base})" if base != 64 else ")")}


def _export_stem(config: Config) -> dict[str, Any]:
    kwargs = Spec.parse(config.stem).kwargs
    layers, base = list(kwargs.get("layers", (3, 4, 9))), kwargs.get("base", 64)
    widths = [base * 4 * 2**n for n in range(len(layers))]
    grid = pair(config.image_size)[0] // 16
    bit = BIT_FIXED | {"embedding_size": base, "depths": layers, "hidden_sizes": widths}
    return {"backbone_config": bit, "backbone_featmap_shape": [1, widths[-1], grid, grid], "neck_ignore_stages": [0, 1]}


POSITIONS = "learned(interpolation='bilinear', antialias=False)"
FIELDS = {  # Config -> config.json
    "image_size": "image_size",
    "channels": "num_channels",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "ffn": "intermediate_size",
    "readout": "readout_type",
    "reassemble_widths": "neck_hidden_sizes",
    "fusion_width": "fusion_hidden_size",
    "head_dropout": "semantic_classifier_dropout",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "eps": "layer_norm_eps",
}

# Defaults of transformers' image processor.
PROCESSOR: dict[str, dict[str, Any]] = {
    "DPT": {
        "resample": 3,
        "image_mean": [0.5],
        "image_std": [0.5],
        "keep_aspect_ratio": False,
        "ensure_multiple_of": 1,
    }
}

# Required values of a config.json.
FIXED: dict[str, Any] = {"hidden_act": "gelu", "head_in_index": -1}
DEPTH_FIXED: dict[str, Any] = {"add_projection": False}

# Defaults of transformers.
DEFAULTS: dict[str, Any] = {
    **FIXED,
    **DEPTH_FIXED,
    "image_size": 384,
    "num_channels": 3,
    "patch_size": 16,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "readout_type": "project",
    "neck_hidden_sizes": (96, 192, 384, 768),
    "fusion_hidden_size": 256,
    "semantic_classifier_dropout": 0.1,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "is_hybrid": False,
    "backbone_config": None,
    "backbone_out_indices": (2, 5, 8, 11),
    "reassemble_factors": (4, 2, 1, 0.5),
    "use_batch_norm_in_fusion_residual": False,
    "use_bias_in_fusion_residual": None,
}

# The backbone of a hybrid: required values, and defaults of transformers.
BIT_FIXED: dict[str, Any] = {
    "model_type": "bit",
    "global_padding": "same",
    "layer_type": "bottleneck",
    "embedding_dynamic_padding": True,
    "out_features": ["stage1", "stage2", "stage3"],
    "num_groups": 32,
    "hidden_act": "relu",
    "output_stride": 32,
    "width_factor": 1,
}
BIT: dict[str, Any] = {
    **BIT_FIXED,
    "embedding_size": 64,
    "hidden_sizes": [256, 512, 1024, 2048],
    "depths": [3, 4, 9],
}
