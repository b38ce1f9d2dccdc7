"""ViT of Hugging Face transformers, both ways.

    theirs                                        ours
    embeddings.patch_embeddings.projection        stem.embed
    embeddings.cls_token, position_embeddings     first, positions.table (drawn larger or smaller without antialias)
    query, key, value                             one qkv matrix, rows by head
    layernorm_before, layernorm_after             mix_norm, feed_norm
    ViTForImageClassification                     classes
    ViTModel                                      classes=0; its pooler is a representation

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
from regard.weights.table import Row, linear, stack, view
from regard.weights.theirs import (
    Classifier,
    classes_of,
    completed,
    feed_of,
    labelled,
    loaded,
    one_of,
    refuse,
    renamed,
    saved_for_transformers,
    shown_by_transformers,
    softmax_only,
    with_biases,
)

# theirs -> ours; of two, the last is written
FEEDS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "silu"}


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    check(config, 1)
    body = "vit." if config.classes else ""
    rows = [*shared(config, body), Row(f"{body}embeddings.cls_token", "first", view("one p c -> (one p) c", one=1))]
    if config.classes:
        return rows + linear("classifier", "head") + _left(f"{body}pooler.dense", "read by the body alone")
    return rows + (linear("pooler.dense", "represent") if config.representation else [])


def shared(config: Config, body: str) -> list[Row]:
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
        "attention": softmax_only(config),
        "feed": one_of(FEEDS, config),
        "stem": ("patches", config.stem == "patches"),
        "positions": ("learned", place.name == "learned" and place.arguments.keys() <= {"antialias"}),
        "prefix": (prefix, config.prefix == prefix),
        "pool": ("token", config.pool == "token"),
        "layer_scale": (None, config.layer_scale is None),
        "representation": (None, not (config.representation and config.classes)),
    }
    refuse("transformers' ViT", config, needed)


def ours(theirs: Mapping[str, Any], pooler: bool = True) -> Config:
    """Our configuration from their config.json; of a body alone, whether its pooler is there."""
    said = completed(theirs, "vit", DEFAULTS, FIXED)
    named = next(iter(said.get("architectures") or ()), "ViTModel")
    if named not in ("ViTModel", "ViTForImageClassification"):
        raise Unsupported(f"their {named} is not among: ViTModel, ViTForImageClassification")
    bare = named == "ViTModel"
    representation = said["pooler_output_size"] or said["hidden_size"] if bare and pooler else None
    return from_dict(Config, fields(said, not bare) | {"representation": representation})


def fields(said: Mapping[str, Any], head: bool) -> dict[str, Any]:
    """The fields of ours that a config.json of a ViT or a DeiT gives."""
    return {field: said[name] for field, name in FIELDS.items()} | {
        "classes": classes_of(said) if head else 0,
        "feed": feed_of(said["hidden_act"], FEEDS),
        "positions": "learned(antialias=False)",
    }


def theirs(config: Config) -> dict[str, Any]:
    """Their config.json from our configuration."""
    check(config, 1)
    named = "ViTForImageClassification" if config.classes else "ViTModel"
    return {"model_type": "vit", "architectures": [named], **said(config)}


def said(config: Config) -> dict[str, Any]:
    """What a config.json of a ViT or a DeiT says of a model of ours."""
    pair = {name: getattr(config, field) for field, name in FIELDS.items()}
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in pair.items()},
        "intermediate_size": config.ffn or 4 * config.width,
        "hidden_act": {ours: theirs for theirs, ours in FEEDS.items()}[config.feed],
        "pooler_output_size": config.representation or config.width,
        **labelled(config.classes),
        **FIXED,
    }


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """A model from a local folder of theirs, in eval mode, and how images are shown to it: labels, mean, crop, ..."""
    return loaded(folder, _ours, ViT, table, shown_by_transformers, ready)


def save(folder: str | Path, what: ViT | Classifier) -> None:
    """Write a folder that transformers reads; all of it or nothing. Of a classifier it says the labels, mean, crop."""
    saved_for_transformers(folder, what, ViT, theirs, table)


def ready(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors; a model may have been made without biases of q, k and v (qkv_bias=False)."""
    return with_biases(state, *(f"attention.attention.{name}" for name in ("query", "key", "value")))


def named(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the modules of transformers 5 hold, under the names that files have."""
    return renamed(state, _RENAMED)


def _ours(said: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    return ours(said, "pooler.dense.weight" in state)


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
    "image": "image_size",
    "channels": "num_channels",
    "patch": "patch_size",
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


def _left(theirs: str, reason: str) -> list[Row]:
    return [Row(f"{theirs}.{part}", None, reason=reason) for part in ("weight", "bias")]
