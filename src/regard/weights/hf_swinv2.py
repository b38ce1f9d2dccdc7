"""Swin v2 of Hugging Face transformers, both ways.

    theirs                                               ours
    attention.self.query, key, value                     project.qkv and project.bias, rows by head; keys have none
    attention.self.logit_scale                           project.log_scale
    attention.self.continuous_position_bias_mlp          positions.up, positions.down
    pretrained_window_sizes                              trained
    Swinv2Model, Swinv2ForImageClassification            classes 0, classes K

    model, shown = hf_swinv2.load(folder)                    a folder with config.json and model.safetensors
    hf_swinv2.save("mine", model)                        Swinv2ForImageClassification.from_pretrained("mine") reads it

All else is as in transformers' Swin (weights.hf_swin), padding too; but theirs decide once, by the size they were made
for, whether a stage's windows are shifted, ours by the image at hand.

Liu et al.: Swin Transformer V2. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.models.swinv2 import Config, SwinV2
from regard.weights.hf_swin import DEFAULTS, FIXED, described, outside, values
from regard.weights.table import Row, linear, same, stack, view
from regard.weights.theirs import Classifier, completed, loaded, saved_for_transformers, shown_by_transformers
from regard.weights.timm_swin import check


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    check("transformers' Swin v2", config, "continuous")
    rows, body = outside(config, "swinv2"), "swinv2." if config.classes else ""
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


def ours(theirs: Mapping[str, Any]) -> Config:
    """Our configuration from their config.json; what it does not say is what transformers takes it to be."""
    said = completed(theirs, "swinv2", DEFAULTS | {"pretrained_window_sizes": (0,)}, FIXED)
    before = tuple(said["pretrained_window_sizes"])
    return from_dict(Config, values(said) | {"trained": before if any(before) else None})


def theirs(config: Config) -> dict[str, Any]:
    """Their config.json from our configuration."""
    check("transformers' Swin v2", config, "continuous")
    before = config.trained or (0,) * len(config.layers)
    return described(config, "swinv2", "Swinv2") | {"pretrained_window_sizes": before}


def load(folder: str | Path) -> tuple[SwinV2, dict[str, Any]]:
    """A model from a local folder of theirs, in eval mode, and how images are shown to it: labels, mean, crop, ..."""
    return loaded(folder, lambda said, _: ours(said), SwinV2, table, shown_by_transformers)


def save(folder: str | Path, what: SwinV2 | Classifier) -> None:
    """Write a folder that transformers reads; all of it or nothing. Of a classifier it says the labels, mean, crop."""
    saved_for_transformers(folder, what, SwinV2, theirs, table)
