"""ViT of Hugging Face transformers, import and export.

    transformers                                  Regard
    embeddings.patch_embeddings.projection        stem.embed
    embeddings.cls_token, position_embeddings     first, positions.table (interpolated without antialiasing)
    query, key, value                             one qkv matrix, rows by head
    layernorm_before, layernorm_after             mix_norm, feed_norm
    ViTForImageClassification                     classes
    ViTModel                                      num_classes=0; its pooler is a representation

    model, task = hf_vit.load(folder)            config.json and model.safetensors, perhaps preprocessor_config.json
    hf_vit.save("mine", model)                    ViTForImageClassification.from_pretrained("mine") reads it

Names are those of files; `normalize_keys` renames tensors of modules of transformers 5.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.core.spec import Spec
from regard.models.vit import Config, ViT
from regard.weights.checkpoint_formats import (
    Classifier,
    add_zero_biases,
    check_requirements,
    count_labels,
    feedforward_for,
    fill_defaults,
    hf_preprocessing,
    label_maps,
    load_image_folder,
    rename_keys,
    requires_feedforward,
    requires_softmax,
    requires_whole_patches,
    save_for_transformers,
)
from regard.weights.table import Row, linear, stack, view

# transformers -> Regard; of two, the last is exported
FEEDS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    check(config, 1)
    body = "vit." if config.num_classes else ""
    rows = [
        *shared_rows(config, body),
        Row(f"{body}embeddings.cls_token", "prefix_tokens", view("one p c -> (one p) c", one=1)),
    ]
    if config.num_classes:
        return rows + linear("classifier", "head") + _dropped_rows(f"{body}pooler.dense", "read by the body alone")
    return rows + (linear("pooler.dense", "pre_logits") if config.representation_size else [])


def shared_rows(config: Config, body: str) -> list[Row]:
    """Return the rows that ViT and DeiT share: all but prefix tokens and heads."""
    there, here = f"{body}encoder.layer.{{}}", "encoder.blocks.{}"
    return [
        Row(f"{body}embeddings.position_embeddings", "positions.table", view("one n c -> (one n) c", one=1)),
        Row(f"{body}embeddings.mask_token", None, reason="mask token of pretraining"),
        *linear(f"{body}embeddings.patch_embeddings.projection", "stem.embed"),
        *linear(f"{there}.layernorm_before", f"{here}.mix_norm"),
        *(
            Row(
                tuple(f"{there}.attention.attention.{name}.{part}" for name in ("query", "key", "value")),
                f"{here}.mix.project.qkv.{part}",
                stack("three (h d) ... -> (h three d) ...", three=3, h=config.heads),
            )
            for part in ("weight", "bias")
        ),
        *linear(f"{there}.attention.output.dense", f"{here}.mix.join.out"),
        *linear(f"{there}.layernorm_after", f"{here}.feed_norm"),
        *linear(f"{there}.intermediate.dense", f"{here}.feed.up"),
        *linear(f"{there}.output.dense", f"{here}.feed.down"),
        *linear(f"{body}layernorm", "encoder.norm"),
    ]


def check(config: Config, prefix: int) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    place = Spec.parse(config.positions)
    needed = {
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        "stem": ("patches", config.stem == "patches"),
        "positions": ("learned", place.name == "learned" and not place.args and place.kwargs.keys() <= {"antialias"}),
        "num_prefix_tokens": (prefix, config.num_prefix_tokens == prefix),
        "pool": ("token", config.pool == "token"),
        "layer_scale": (None, config.layer_scale is None),
        "image_size": requires_whole_patches(config),
        "representation_size": (None, not (config.representation_size and config.num_classes)),
    }
    check_requirements("transformers' ViT", config, needed)


def import_config(external: Mapping[str, Any], pooler: bool = True) -> Config:
    """Convert a config.json to a Config; `pooler`: whether a bare ViTModel has one."""
    named = next(iter(external.get("architectures") or ()), "ViTModel")
    if named not in ("ViTModel", "ViTForImageClassification"):
        raise Unsupported(f"{named} is not supported; choose one of: ViTModel, ViTForImageClassification")
    bare = named == "ViTModel"
    raw = fill_defaults(external, "vit", DEFAULTS, FIXED if bare and pooler else {})
    representation = raw["pooler_output_size"] or raw["hidden_size"] if bare and pooler else None
    return from_dict(Config, import_fields(raw, not bare) | {"representation_size": representation})


def import_fields(raw: Mapping[str, Any], head: bool) -> dict[str, Any]:
    """Return the fields of a Config from a config.json of a ViT or DeiT."""
    return {field: raw[name] for field, name in FIELDS.items()} | {
        "num_classes": count_labels(raw) if head else 0,
        "feedforward": feedforward_for(raw["hidden_act"], FEEDS),
        "positions": "learned(antialias=False)",
    }


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    check(config, 1)
    named = "ViTForImageClassification" if config.num_classes else "ViTModel"
    return {"model_type": "vit", "architectures": [named], **export_fields(config)}


def export_fields(config: Config) -> dict[str, Any]:
    """Return the fields of a config.json that ViT and DeiT share."""
    pair = {name: getattr(config, field) for field, name in FIELDS.items()}
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in pair.items()},
        "intermediate_size": config.ffn or 4 * config.width,
        "hidden_act": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
        "pooler_output_size": config.representation_size or config.width,
        **label_maps(config.num_classes),
        **FIXED,
    }


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, _import_config, ViT, table, hf_preprocessing, add_missing_biases)


def save(folder: str | Path, what: ViT | Classifier) -> None:
    """Write a folder for transformers, atomically; of a classifier, with labels and preprocessing."""
    save_for_transformers(folder, what, ViT, export_config, table)


def add_missing_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add zero biases of q, k and v to tensors of a model with qkv_bias=False."""
    return add_zero_biases(state, *(f"attention.attention.{name}" for name in ("query", "key", "value")))


def normalize_keys(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename tensors of modules of transformers 5 to the names of files."""
    return rename_keys(state, _RENAMED)


def _import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    check_biases(raw, state)
    return import_config(raw, "pooler.dense.weight" in state)


def check_biases(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """Raise `BadInput` if config.json and the tensors disagree about biases of q, k and v."""
    said, has = raw.get("qkv_bias", True), any(name.endswith("attention.query.bias") for name in state)
    if said != has:
        raise BadInput(f"qkv_bias in config.json is {said}, but the weights have {'such' if has else 'no such'} biases")


_RENAMED = {
    "layers.": "encoder.layer.",
    "attention.q_proj.": "attention.attention.query.",
    "attention.k_proj.": "attention.attention.key.",
    "attention.v_proj.": "attention.attention.value.",
    "attention.o_proj.": "attention.output.dense.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
}

FIELDS = {  # Config -> config.json
    "image_size": "image_size",
    "channels": "num_channels",
    "patch_size": "patch_size",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "ffn": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "eps": "layer_norm_eps",
}

# Required values of a config.json.
FIXED: dict[str, Any] = {"pooler_act": "tanh"}

# Defaults of transformers.
DEFAULTS: dict[str, Any] = {
    **FIXED,
    "image_size": 224,
    "num_channels": 3,
    "patch_size": 16,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pooler_output_size": None,
}


def _dropped_rows(external: str, reason: str) -> list[Row]:
    return [Row(f"{external}.{part}", None, reason=reason) for part in ("weight", "bias")]
