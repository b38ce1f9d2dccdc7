"""DETR of Hugging Face transformers (detection, panoptic segmentation), import and export.

    transformers                                          Regard
    backbone.conv_encoder.model (a ResNet)                stem.backbone
    input_projection                                      stem.project
    q_proj, k_proj, v_proj                                one qkv matrix, rows by head; in cross-attention q and kv
    query_position_embeddings                             queries
    class_labels_classifier, bbox_predictor               class_head, box_head
    bbox_attention.q_linear, k_linear                     mask_head.q, k
    mask_head.lay{1-5}, gn{1-5}, adapter{1-3}, out_lay    mask_head.convs, norms, adapters, out
    DetrForSegmentation                                   masks=True

    model, task = hf_detr.load(folder)                    config.json, model.safetensors, preprocessor_config.json
    hf_detr.save("mine", model)                           DetrForObjectDetection.from_pretrained("mine") reads it

The backbone is timm's ResNet or that of transformers (`use_timm_backbone=False`); it is saved as timm's. Names are
those of files; `normalize_keys` renames tensors of modules of transformers 5, and its ResNet's to those of timm's. With
`auxiliary_loss` transformers feeds the normed output of a decoder layer to the next; the paper's code and Regard feed
the output itself, as transformers does without it.

Carion et al.: End-to-End Object Detection with Transformers. ECCV 2020. arXiv:2005.12872
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.blocks.resnet_blocks import BLOCKS
from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.core.shapes import Tensor
from regard.models.detr import DETR, Config
from regard.models.resnet import SIZES as RESNETS
from regard.models.resnet import Config as ResNetConfig
from regard.weights.checkpoint_formats import (
    Requirement,
    check_requirements,
    count_labels,
    feedforward_for,
    fill_defaults,
    label_maps,
    label_names,
    load_image_folder,
    processor_colours,
    read_processor,
    rename_keys,
    requires_feedforward,
    requires_softmax,
    save_for_transformers,
)
from regard.weights.hf.marian import FEEDS, block_rows
from regard.weights.table import Row, linear, nested, same
from regard.weights.timm import resnet


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = [
        *nested(resnet.table(resnet_of(config)), "model.backbone.conv_encoder.model.", "stem.backbone."),
        *linear("model.input_projection", "stem.project"),
        *block_rows(config.heads),
        *linear("model.decoder.layernorm", "decoder.norm"),
        Row("model.query_position_embeddings.weight", "queries", same),
        *linear("class_labels_classifier", "class_head"),
        *linear("bbox_predictor.layers.{}", "box_head.layers.{}"),
    ]
    return nested(rows, "detr.", "") + mask_head_rows() if config.masks else rows


def mask_head_rows() -> list[Row]:
    """Return the rows of the panoptic head, which the original repository names in the same way."""
    rows = linear("bbox_attention.q_linear", "mask_head.q") + linear("bbox_attention.k_linear", "mask_head.k")
    for n in range(5):
        rows += linear(f"mask_head.lay{n + 1}", f"mask_head.convs.{n}")
        rows += linear(f"mask_head.gn{n + 1}", f"mask_head.norms.{n}")
    for n in range(3):
        rows += linear(f"mask_head.adapter{n + 1}", f"mask_head.adapters.{n}")
    return rows + linear("mask_head.out_lay", "mask_head.out")


def resnet_of(config: Config) -> ResNetConfig:
    """Return the Config of the backbone, which must be a ResNet with frozen norms, as in the other libraries."""
    if not isinstance(config.backbone, ResNetConfig):
        raise Unsupported("the DETR of other libraries has a ResNet as its backbone, this model an EfficientNet")
    check_requirements(
        "the DETR of other libraries", config.backbone, {"norm": ("frozen", config.backbone.norm == "frozen")}
    )
    return config.backbone


def requires_plain_queries(config: Config) -> dict[str, Requirement]:
    """Require one group of queries and no denoising, which only training here has."""
    return {"query_groups": (1, config.query_groups == 1), "denoising": (False, not config.denoising)}


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    raw = fill_defaults(external, "detr", _DEFAULTS, _FIXED)
    named = next(iter(external.get("architectures") or ()), "DetrForObjectDetection")
    if named not in ARCHITECTURES:
        raise Unsupported(f"{named} is not supported; choose one of: {', '.join(ARCHITECTURES)}")
    for name in ("attention_heads", "ffn_dim"):
        if (a := raw[f"encoder_{name}"]) != (b := raw[f"decoder_{name}"]):
            raise Unsupported(f"{name} of encoder and decoder must be equal, got {a} and {b}")
    values = {field: raw[name] for field, name in _FIELDS.items()} | {
        "num_classes": count_labels(raw),
        "backbone": _import_backbone(raw, ARCHITECTURES[named]),
        "feedforward": feedforward_for(raw["activation_function"], FEEDS),
        "masks": ARCHITECTURES[named],
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    return {
        "model_type": "detr",
        "architectures": [name for name, masks in ARCHITECTURES.items() if masks == config.masks],
        **{name: getattr(config, field) for field, name in _FIELDS.items()},
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.ffn,
        "activation_function": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        "num_channels": resnet_of(config).channels,
        "dilation": resnet_of(config).dilated,
        "use_timm_backbone": True,
        "use_pretrained_backbone": False,
        "backbone": _timm_name(resnet_of(config)),
        **label_maps(config.num_classes),
        **_FIXED,
    }


def normalize_keys(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors of modules of transformers 5 to the names of files; those of files stay."""
    found = rename_keys(state, _RENAMED)
    found = {name.replace(".backbone.model.", ".backbone.conv_encoder.model."): value for name, value in found.items()}
    return {_RESNET_BLOCK.sub(_timm_block, name): value for name, value in rename_keys(found, _RESNET_STEM).items()}


def load(folder: str | Path) -> tuple[DETR, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, lambda raw, _: import_config(raw), DETR, table, read_preprocessing, normalize_keys)


def read_preprocessing(folder: Path, raw: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Return the task, its labels, and how images are shown.

    A folder does not say which classes are things. Those of COCO's panoptic categories have ids up to 90; elsewhere
    every class counts as one, and segments are never joined, as transformers does by default.
    """
    how, channels = read_processor(folder, PROCESSOR), config.backbone.channels
    if how.get("pad_size"):
        raise Unsupported(
            f"pad_size={how['pad_size']} in preprocessor_config.json is not supported; images differ in size"
        )
    size = how["size"]
    size = size if isinstance(size, Mapping) else {"shortest_edge": size, "longest_edge": how.get("max_size", 1333)}
    names = next((names for names in SIZE_MODES if size.keys() == {*names}), None)
    if names is None:
        raise Unsupported(
            f"size={size!r} in preprocessor_config.json is not supported; expected shortest_edge and longest_edge, or "
            "height and width"
        )
    labels = label_names(raw, config.num_classes)
    shown = {
        "labels": labels,
        "preprocess": {
            "size": tuple(int(size[name]) for name in names),
            "channels": channels,
            "crop_mode": SIZE_MODES[names],
            **processor_colours(how, channels),
        },
    }
    if not config.masks:
        return {"name": "object_detection", **shown}
    last_thing = LAST_THING_OF_COCO if len(labels) == COCO_PANOPTIC_CLASSES else len(labels)
    return {"name": "panoptic_segmentation", **shown, "things": labels[: last_thing + 1]}


def save(folder: str | Path, model: DETR) -> None:
    """Write a folder for transformers, atomically."""
    save_for_transformers(folder, model, DETR, export_config, table)


# Defaults of transformers' image processor.
PROCESSOR: dict[str, dict[str, Any]] = {
    "Detr": {
        "size": {"shortest_edge": 800, "longest_edge": 1333},
        "resample": 2,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }
}
SIZE_MODES = {("shortest_edge", "longest_edge"): "edges", ("height", "width"): "squash"}  # size -> crop_mode
COCO_PANOPTIC_CLASSES, LAST_THING_OF_COCO = 250, 90
ARCHITECTURES = {"DetrForObjectDetection": False, "DetrForSegmentation": True}  # name -> masks
_FIELDS = {
    "num_queries": "num_queries",
    "width": "d_model",
    "heads": "encoder_attention_heads",
    "ffn": "encoder_ffn_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
}
_DEFAULTS = {
    "num_queries": 100,
    "d_model": 256,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "num_channels": 3,
    "dilation": False,
    "position_embedding_type": "sine",
    "auxiliary_loss": False,
}
# With auxiliary_loss, transformers norms the queries between the layers of the decoder, in inference too.
_FIXED = {"position_embedding_type": "sine", "auxiliary_loss": False}
# modules of transformers 5 -> files
_RENAMED = {
    ".o_proj.": ".out_proj.",
    ".mlp.fc1.": ".fc1.",
    ".mlp.fc2.": ".fc2.",
    "bbox_attention.q_proj": "bbox_attention.q_linear",
    "bbox_attention.k_proj": "bbox_attention.k_linear",
    **{f"mask_head.conv{n}.conv.": f"mask_head.lay{n}." for n in (1, 2)},
    **{f"mask_head.conv{n}.norm.": f"mask_head.gn{n}." for n in (1, 2)},
    **{f"mask_head.fpn_stages.{n}.fpn_adapter.": f"mask_head.adapter{n + 1}." for n in range(3)},
    **{f"mask_head.fpn_stages.{n}.refine.conv.": f"mask_head.lay{n + 3}." for n in range(3)},
    **{f"mask_head.fpn_stages.{n}.refine.norm.": f"mask_head.gn{n + 3}." for n in range(3)},
    "mask_head.output_conv.": "mask_head.out_lay.",
}
_RESNET_DEFAULTS: dict[str, Any] = {
    "num_channels": 3,
    "embedding_size": 64,
    "hidden_sizes": [256, 512, 1024, 2048],
    "depths": [3, 4, 6, 3],
    "layer_type": "bottleneck",
    "hidden_act": "relu",
    "downsample_in_first_stage": False,
    "downsample_in_bottleneck": False,
    "out_features": None,
}
# ResNet of transformers -> timm's
_RESNET_STEM = {
    ".model.embedder.embedder.convolution.": ".model.conv1.",
    ".model.embedder.embedder.normalization.": ".model.bn1.",
}
_RESNET_BLOCK = re.compile(
    r"\.encoder\.stages\.(\d+)\.layers\.(\d+)\.(?:shortcut|layer\.(\d+))\.(convolution|normalization)\."
)


def _import_backbone(raw: Mapping[str, Any], masks: bool) -> ResNetConfig:
    """Return the ResNet that a config.json names, by its fields of today or of earlier versions."""
    inner = raw.get("backbone_config") or {}
    if inner.get("model_type") == "resnet":
        return _import_resnet(inner, masks)
    if inner and inner.get("model_type") != "timm_backbone":
        raise Unsupported(
            f"the backbone is a '{inner.get('model_type')}' of transformers; supported are the ResNets of timm and of "
            "transformers, as in facebook/detr-resnet-50"
        )
    name = str(inner.get("backbone") or raw.get("backbone") or "resnet50")
    plain = [known for known in resnet.KNOWN if known.startswith("resnet")]
    if name.split(".")[0] not in plain:
        raise Unsupported(f"the backbone '{name}' is not supported; choose one of {', '.join(plain)}")
    # where the backbone has fields of its own, those of the whole are not read
    channels = inner.get("num_channels", 3) if inner else raw["num_channels"]
    stride = inner.get("output_stride") if inner else 16 if raw["dilation"] else None
    if stride not in (None, 16, 32):
        raise Unsupported(f"a backbone with output_stride={stride} is not supported; expected 32, or 16 (DC5)")
    return from_dict(
        ResNetConfig,
        RESNETS[resnet.KNOWN[name.split(".")[0]]]
        | {"num_classes": 0, "norm": "frozen", "channels": channels, "dilated": stride == 16},
    )


def _import_resnet(external: Mapping[str, Any], masks: bool) -> ResNetConfig:
    """Return the ResNet of transformers that a `backbone_config` describes."""
    raw = {**_RESNET_DEFAULTS, **external}
    kind, width = str(raw["layer_type"]), raw["embedding_size"]
    stages = [f"stage{n + 1}" for n in range(len(raw["depths"]))]
    expansion = BLOCKS[kind].expansion if kind in BLOCKS else 1
    expected = {
        "layer_type": kind if kind in BLOCKS else " or ".join(BLOCKS),
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
        "hidden_sizes": [width * expansion * 2**n for n in range(len(stages))],
    }
    for name, value in expected.items():
        if raw[name] != value:
            raise Unsupported(f"a ResNet with {name}={raw[name]!r} is not supported as a backbone; expected {value!r}")
    maps = raw["out_features"] or stages[-1:]
    if maps != stages if masks else maps[-1] != stages[-1]:
        need = f"all, {stages}" if masks else f"the last to be '{stages[-1]}'"
        raise Unsupported(f"a backbone with out_features={maps} is not supported; expected {need}")
    return ResNetConfig(
        num_classes=0,
        channels=raw["num_channels"],
        block=kind,  # type: ignore[arg-type]
        layers=tuple(raw["depths"]),
        width=width,
        norm="frozen",
    )


def _timm_block(found: re.Match[str]) -> str:
    """Return the name that timm's ResNet has for a layer of that of transformers."""
    stage, block, layer, part = found.groups()
    norm = part == "normalization"
    last = f"downsample.{int(norm)}" if layer is None else f"{'bn' if norm else 'conv'}{int(layer) + 1}"
    return f".layer{int(stage) + 1}.{block}.{last}."


def _timm_name(config: ResNetConfig) -> str:
    same_shape = ("block", "layers", "width", "stem", "squeeze_excitation", "non_local")
    for name, size in resnet.KNOWN.items():
        known = ResNetConfig(**RESNETS[size])
        if all(getattr(known, field) == getattr(config, field) for field in same_shape):
            return name
    raise Unsupported(f"this backbone is none of timm's {', '.join(resnet.KNOWN)}: {config}")


def _check(config: Config) -> None:
    needed = {
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        **requires_plain_queries(config),
    }
    check_requirements("transformers' DETR", config, needed)
    if config.masks and config.feedforward != "relu":
        raise Unsupported(f"the panoptic head of transformers needs feedforward='relu', got '{config.feedforward}'")
    resnet_of(config)
