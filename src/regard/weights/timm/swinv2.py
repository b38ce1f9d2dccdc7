"""Swin v2 of timm, import and export.

    timm                                    Regard
    attn.qkv, q_bias, v_bias                project.qkv and project.bias, rows by head; keys have none
    attn.logit_scale                        project.log_scale
    attn.cpb_mlp                            positions.up, positions.down

    model, task = timm_swinv2.load(folder)
    timm_swinv2.save("mine", model)         timm.create_model("local-dir:mine", pretrained=True) reads it

All else is as in weights.timm.swin, padding too. swinv2_cr_... are another model.

Liu et al.: Swin Transformer V2. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.shapes import Tensor
from regard.models.swinv2 import Config, SwinV2
from regard.weights.checkpoint_formats import Classifier, load_image_folder, save_for_timm, timm_preprocessing
from regard.weights.table import Row, linear, same, stack, view
from regard.weights.timm.swin import check, export_fields, import_fields, shared_rows, warn_rounding

PLAIN = re.compile(
    r"swinv2_(?:tiny|small|base|large)_window(?:(?P<before>\d+)to)?(?P<window>\d+)_(?:\d+to)?(?P<image>\d+)"
)


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = shared_rows(config)
    for stage, heads in enumerate(config.heads):
        there, here = f"layers.{stage}.blocks.{{}}.attn", f"stages.{stage}.blocks.{{}}.mix"
        by_head = view("(three h d) ... -> (h three d) ...", three=3, h=heads)
        rows += [
            Row(f"{there}.qkv.weight", f"{here}.project.qkv.weight", by_head),
            Row(
                (f"{there}.q_bias", f"{there}.v_bias"),
                f"{here}.project.bias",
                stack("two (h d) -> (h two d)", two=2, h=heads),
            ),
            Row(f"{there}.logit_scale", f"{here}.project.log_scale", view("h 1 1 -> h")),
            *linear(f"{there}.cpb_mlp.0", f"{here}.positions.up"),
            Row(f"{there}.cpb_mlp.2.weight", f"{here}.positions.down.weight", same),
        ]
    return rows


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    """Convert a config.json and its tensors to a Config."""
    found, named = import_fields(raw, state, PLAIN, "logit_scale", 0)
    # Models with changed windows were pretrained at half the size, where the last stage was a window of half the width.
    moved = named["before"] and [int(named["before"])] * 3 + [int(named["before"]) // 2]
    before = (raw.get("model_args") or {}).get("pretrained_window_sizes") or moved
    return warn_rounding(
        from_dict(Config, found | {"pretrained_window_sizes": before if before and any(before) else None})
    )


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json: an architecture of timm and its arguments."""
    _check(config)
    before = {"pretrained_window_sizes": list(config.pretrained_window_sizes or [0] * len(config.layers))}
    return export_fields(warn_rounding(config), "swinv2_tiny_window8_256", before)


def load(folder: str | Path) -> tuple[SwinV2, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, SwinV2, table, timm_preprocessing)


def save(folder: str | Path, what: SwinV2 | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, SwinV2, export_config, table)


def _check(config: Config) -> None:
    check("timm's Swin v2", config, "continuous", "shifted")
