"""Swin of Hugging Face transformers, import and export.

    transformers                                     Regard
    embeddings                                       stem, embed_norm
    layers.{s}.downsample, after stage s             stages.{s+1}.merge, before the next
    attention.self.query, key, value                 one qkv matrix, rows by head
    attention.self.relative_position_bias_table      positions.table
    SwinModel, SwinForImageClassification            classes 0, classes K

    model, task = hf_swin.load(folder)                  a folder with config.json and model.safetensors
    hf_swin.save("mine", model)                      SwinForImageClassification.from_pretrained("mine") reads it

Padding is attended to (padding="attend"). Names are those of files; modules of transformers 5 have newer ones. Where
one side of a grid is no longer than a window and the other is, transformers shifts along neither, Regard along one: a
model with such grids at its training size is refused.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.models.swin import Config, Swin
from regard.weights.checkpoint_formats import (
    Classifier,
    count_labels,
    fill_defaults,
    hf_preprocessing,
    label_maps,
    load_image_folder,
    rename_keys,
    save_for_transformers,
)
from regard.weights.table import Row, linear, same, stack
from regard.weights.timm.swin import check, stage_grids


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows, body = shared_rows(config, "swin"), "swin." if config.num_classes else ""
    for stage, heads in enumerate(config.heads):
        there, here = f"{body}encoder.layers.{stage}.blocks.{{}}.attention.self", f"stages.{stage}.blocks.{{}}.mix"
        rows += [
            Row(f"{there}.relative_position_bias_table", f"{here}.positions.table", same),
            Row(f"{there}.relative_position_index", None, reason="counted, not learned"),
            *(
                Row(
                    tuple(f"{there}.{name}.{part}" for name in ("query", "key", "value")),
                    f"{here}.project.qkv.{part}",
                    stack("three (h d) ... -> (h three d) ...", three=3, h=heads),
                )
                for part in ("weight", "bias")
            ),
        ]
    return rows


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    return from_dict(Config, import_fields(fill_defaults(external, "swin", DEFAULTS, FIXED)))


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    return export_fields(config, "swin", "Swin")


def load(folder: str | Path) -> tuple[Swin, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, lambda raw, _: import_config(raw), Swin, table, hf_preprocessing)


def save(folder: str | Path, what: Swin | Classifier) -> None:
    """Write a folder for transformers, atomically; of a classifier, with labels and preprocessing."""
    save_for_transformers(folder, what, Swin, export_config, table)


def normalize_keys(state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename tensors of modules of transformers 5 to the names of files."""
    return rename_keys(state, _RENAMED)


def _check(config: Config) -> None:
    check("transformers' Swin", config, "table", "attend")
    smallest = min(stage_grids(config)[-1])
    if smallest < config.window_size:
        raise Unsupported(
            f"transformers' Swin needs windows of one size in all stages; here the last grid has a side of {smallest}, "
            f"the window {config.window_size}"
        )
    check_square("transformers' Swin", config)


_RENAMED = {
    **{f"attention.{name[0]}_proj.": f"attention.self.{name}." for name in ("query", "key", "value")},
    "attention.relative_position_bias.": "attention.self.",
    "attention.o_proj.": "attention.output.dense.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
}


# -- shared by Swin and Swin v2 ----------------------------------------------------------------------------------------


def check_square(whose: str, config: Any) -> None:
    """Raise `Unsupported` unless windows and shifts of every stage are the same along rows and columns."""
    window = config.window_size
    for stage, (y, x) in enumerate(stage_grids(config)):
        if y != x and min(y, x) <= window:
            raise Unsupported(
                f"{whose} has one window and one shift for both sides of a grid; stage {stage} has a grid of {y} x {x} "
                f"and windows of {window}, so that Regard's differ; use square images or smaller windows"
            )


def shared_rows(config: Any, name: str) -> list[Row]:
    """Return all rows except those of attention."""
    body, last = f"{name}." if config.num_classes else "", len(config.layers) - 1
    rows = [
        *linear(f"{body}embeddings.patch_embeddings.projection", "stem.embed"),
        *linear(f"{body}embeddings.norm", "embed_norm"),
        *linear(f"{body}layernorm", "norm"),
    ]
    for stage in range(last + 1):
        there, here = f"{body}encoder.layers.{stage}", f"stages.{stage}.blocks.{{}}"
        rows += [
            *linear(f"{there}.blocks.{{}}.layernorm_before", f"{here}.mix_norm"),
            *linear(f"{there}.blocks.{{}}.attention.output.dense", f"{here}.mix.join.out"),
            *linear(f"{there}.blocks.{{}}.layernorm_after", f"{here}.feed_norm"),
            *linear(f"{there}.blocks.{{}}.intermediate.dense", f"{here}.feed.up"),
            *linear(f"{there}.blocks.{{}}.output.dense", f"{here}.feed.down"),
        ]
        if stage < last:
            rows += linear(f"{there}.downsample.norm", f"stages.{stage + 1}.merge.norm")
            rows += [Row(f"{there}.downsample.reduction.weight", f"stages.{stage + 1}.merge.narrow.weight", same)]
    return rows + (linear("classifier", "head") if config.num_classes else [])


def import_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Config from a config.json."""
    named = next(iter(raw.get("architectures") or ()), "")
    found = {field: raw[name] for field, name in FIELDS.items()}
    return found | {"num_classes": 0 if named.endswith("Model") else count_labels(raw), "padding": "attend"}


def export_fields(config: Any, kind: str, name: str) -> dict[str, Any]:
    """Return a config.json."""
    return {
        "model_type": kind,
        "architectures": [f"{name}ForImageClassification" if config.num_classes else f"{name}Model"],
        **{external: getattr(config, field) for field, external in FIELDS.items()},
        **label_maps(config.num_classes),
        **FIXED,
    }


FIELDS = {  # Config -> config.json
    "image_size": "image_size",
    "channels": "num_channels",
    "patch_size": "patch_size",
    "width": "embed_dim",
    "heads": "num_heads",
    "layers": "depths",
    "window_size": "window_size",
    "mlp_ratio": "mlp_ratio",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "drop_path": "drop_path_rate",
}

# Required values of a config.json.
FIXED: dict[str, Any] = {
    "hidden_act": "gelu",
    "qkv_bias": True,
    "use_absolute_embeddings": False,
    "layer_norm_eps": 1e-5,
}

# Defaults of transformers.
DEFAULTS: dict[str, Any] = {
    **FIXED,
    "image_size": 224,
    "num_channels": 3,
    "patch_size": 4,
    "embed_dim": 96,
    "num_heads": (3, 6, 12, 24),
    "depths": (2, 2, 6, 2),
    "window_size": 7,
    "mlp_ratio": 4.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "drop_path_rate": 0.1,
}
