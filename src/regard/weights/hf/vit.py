"""ViT of Hugging Face transformers, both ways.

    theirs                                        ours
    embeddings.patch_embeddings.projection        stem.embed
    embeddings.cls_token, position_embeddings     first, positions.table (drawn larger or smaller without antialias)
    query, key, value                             one qkv matrix, rows by head
    layernorm_before, layernorm_after             mix_norm, feed_norm
    ViTForImageClassification                     classes
    ViTModel                                      num_classes=0; its pooler is a representation

    model, shown = hf_vit.load(folder)            config.json and model.safetensors, perhaps preprocessor_config.json
    hf_vit.save("mine", model)                    ViTForImageClassification.from_pretrained("mine") reads it

The names are those of the files. Modules of transformers 5 call their tensors otherwise; `named` gives theirs a file's.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
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
    save_for_transformers,
)
from regard.weights.table import Row, linear, stack, view

# theirs -> ours; of two, the last is written
FEEDS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
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
    """What ViT and DeiT have in common: all but the tokens before the patches, and the heads."""
    there, here = f"{body}encoder.layer.{{}}", "encoder.blocks.{}"
    return [
        Row(f"{body}embeddings.position_embeddings", "positions.table", view("one n c -> (one n) c", one=1)),
        Row(f"{body}embeddings.mask_token", None, reason="stands for patches that only their pre-training hides"),
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
    """Refuse what theirs have no place for; at other sizes of images they draw positions their own way."""
    place = Spec.parse(config.positions)
    needed = {
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        "stem": ("patches", config.stem == "patches"),
        "positions": ("learned", place.name == "learned" and place.kwargs.keys() <= {"antialias"}),
        "num_prefix_tokens": (prefix, config.num_prefix_tokens == prefix),
        "pool": ("token", config.pool == "token"),
        "layer_scale": (None, config.layer_scale is None),
        "representation_size": (None, not (config.representation_size and config.num_classes)),
    }
    check_requirements("transformers' ViT", config, needed)


def import_config(external: Mapping[str, Any], pooler: bool = True) -> Config:
    """Our configuration from their config.json; of a body alone, whether its pooler is there."""
    said = fill_defaults(external, "vit", DEFAULTS, FIXED)
    named = next(iter(said.get("architectures") or ()), "ViTModel")
    if named not in ("ViTModel", "ViTForImageClassification"):
        raise Unsupported(f"their {named} is not among: ViTModel, ViTForImageClassification")
    bare = named == "ViTModel"
    representation = said["pooler_output_size"] or said["hidden_size"] if bare and pooler else None
    return from_dict(Config, import_fields(said, not bare) | {"representation_size": representation})


def import_fields(said: Mapping[str, Any], head: bool) -> dict[str, Any]:
    """The fields of ours that a config.json of a ViT or a DeiT gives."""
    return {field: said[name] for field, name in FIELDS.items()} | {
        "num_classes": count_labels(said) if head else 0,
        "feedforward": feedforward_for(said["hidden_act"], FEEDS),
        "positions": "learned(antialias=False)",
    }


def export_config(config: Config) -> dict[str, Any]:
    """Their config.json from our configuration."""
    check(config, 1)
    named = "ViTForImageClassification" if config.num_classes else "ViTModel"
    return {"model_type": "vit", "architectures": [named], **export_fields(config)}


def export_fields(config: Config) -> dict[str, Any]:
    """What a config.json of a ViT or a DeiT says of a model of ours."""
    pair = {name: getattr(config, field) for field, name in FIELDS.items()}
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in pair.items()},
        "intermediate_size": config.ffn or 4 * config.width,
        "hidden_act": {ours: theirs for theirs, ours in FEEDS.items()}[config.feedforward],
        "pooler_output_size": config.representation_size or config.width,
        **label_maps(config.num_classes),
        **FIXED,
    }


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """A model from a local folder of theirs, in eval mode, and how images are shown to it: labels, mean, crop, ..."""
    return load_image_folder(folder, _import_config, ViT, table, hf_preprocessing, add_missing_biases)


def save(folder: str | Path, what: ViT | Classifier) -> None:
    """Write a folder that transformers reads; all of it or nothing. Of a classifier it says the labels, mean, crop."""
    save_for_transformers(folder, what, ViT, export_config, table)


def add_missing_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors; a model may have been made without biases of q, k and v (qkv_bias=False)."""
    return add_zero_biases(state, *(f"attention.attention.{name}" for name in ("query", "key", "value")))


def normalize_keys(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the modules of transformers 5 hold, under the names that files have."""
    return rename_keys(state, _RENAMED)


def _import_config(said: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    return import_config(said, "pooler.dense.weight" in state)


_RENAMED = {
    "layers.": "encoder.layer.",
    "attention.q_proj.": "attention.attention.query.",
    "attention.k_proj.": "attention.attention.key.",
    "attention.v_proj.": "attention.attention.value.",
    "attention.o_proj.": "attention.output.dense.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
}

FIELDS = {  # ours -> theirs, where they mean the same
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

# What a ViT must have for ours to be the same.
FIXED: dict[str, Any] = {"pooler_act": "tanh"}

# What transformers assumes of a config.json that does not say.
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
