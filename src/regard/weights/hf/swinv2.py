"""Swin v2 of Hugging Face transformers, import and export.

    transformers                                         Regard
    attention.self.query, key, value                     project.qkv and project.bias, rows by head; keys have none
    attention.self.logit_scale                           project.log_scale
    attention.self.continuous_position_bias_mlp          positions.up, positions.down
    pretrained_window_sizes                              pretrained_window_sizes
    Swinv2Model, Swinv2ForImageClassification            classes 0, classes K

    model, task = hf_swinv2.load(folder)                    a folder with config.json and model.safetensors
    hf_swinv2.save("mine", model)                        Swinv2ForImageClassification.from_pretrained("mine") reads it

All else is as in weights.hf.swin, padding too; but transformers decides by the training size whether the windows of a
stage are shifted, Regard by the size of each image.

Liu et al.: Swin Transformer V2. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.models.swinv2 import Config, SwinV2
from regard.weights.checkpoint_formats import (
    Classifier,
    fill_defaults,
    hf_preprocessing,
    load_image_folder,
    save_for_transformers,
)
from regard.weights.hf.swin import DEFAULTS, FIXED, check_square, export_fields, import_fields, shared_rows
from regard.weights.table import Row, linear, same, stack, view
from regard.weights.timm.swin import check, rounded_windows


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows, body = shared_rows(config, "swinv2"), "swinv2." if config.num_classes else ""
    for stage, heads in enumerate(config.heads):
        there, here = f"{body}encoder.layers.{stage}.blocks.{{}}.attention.self", f"stages.{stage}.blocks.{{}}.mix"
        network = f"{there}.continuous_position_bias_mlp"
        rows += [
            Row(
                tuple(f"{there}.{name}.weight" for name in ("query", "key", "value")),
                f"{here}.project.qkv.weight",
                stack("three (h d) c -> (h three d) c", three=3, h=heads),
            ),
            Row(
                (f"{there}.query.bias", f"{there}.value.bias"),
                f"{here}.project.bias",
                stack("two (h d) -> (h two d)", two=2, h=heads),
            ),
            Row(f"{there}.logit_scale", f"{here}.project.log_scale", view("h 1 1 -> h")),
            *linear(f"{network}.0", f"{here}.positions.up"),
            Row(f"{network}.2.weight", f"{here}.positions.down.weight", same),
            *(
                Row(f"{there}.{name}", None, reason="counted, not learned")
                for name in ("relative_position_index", "relative_coords_table")
            ),
        ]
    return rows


def import_config(external: Mapping[str, Any]) -> Config:
    """Convert a config.json to a Config; missing fields have the defaults of transformers."""
    raw = fill_defaults(external, "swinv2", DEFAULTS | {"pretrained_window_sizes": (0,)}, FIXED)
    before = tuple(raw["pretrained_window_sizes"])
    return from_dict(Config, import_fields(raw) | {"pretrained_window_sizes": before if any(before) else None})


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    _check(config)
    before = config.pretrained_window_sizes or (0,) * len(config.layers)
    return export_fields(config, "swinv2", "Swinv2") | {"pretrained_window_sizes": before}


def load(folder: str | Path) -> tuple[SwinV2, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, lambda raw, _: import_config(raw), SwinV2, table, hf_preprocessing)


def save(folder: str | Path, what: SwinV2 | Classifier) -> None:
    """Write a folder for transformers, atomically; of a classifier, with labels and preprocessing."""
    save_for_transformers(folder, what, SwinV2, export_config, table)


def _check(config: Config) -> None:
    check("transformers' Swin v2", config, "continuous", "attend")
    check_square("transformers' Swin v2", config)
    if windows := rounded_windows(config):
        raise Unsupported(f"transformers' Swin v2 chooses {windows}; use an image size that merging divides")
