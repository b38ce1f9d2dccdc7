"""Swin v2 of timm, both ways.

    theirs                                  ours
    attn.qkv, q_bias, v_bias                project.qkv and project.bias, rows by head; keys have none
    attn.logit_scale                        project.log_scale
    attn.cpb_mlp                            positions.up, positions.down

All else is as in timm's Swin (weights.timm_swin), padding too.

Liu et al.: Swin Transformer V2. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from regard.models.swinv2 import Config
from regard.weights.table import Row, same, stack, view
from regard.weights.theirs import refuse, softmax_only
from regard.weights.timm_swin import both, outside


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    refuse("timm's Swin v2", config, {"attention": softmax_only(config)})
    rows = outside(config)
    for stage, heads in enumerate(config.heads):
        there, here = f"layers.{stage}.blocks.{{}}.attn", f"stages.{stage}.blocks.{{}}.mix"
        by_head = view("(three h d) ... -> (h three d) ...", three=3, h=heads)
        rows += [
            Row(f"{there}.qkv.weight", f"{here}.project.qkv.weight", by_head),
            Row(
                (f"{there}.q_bias", f"{there}.v_bias"),
                f"{here}.project.bias",
                stack("two (h d) -> h two d", two=2, h=heads),
            ),
            Row(f"{there}.logit_scale", f"{here}.project.log_scale", view("h 1 1 -> h")),
            *both(f"{there}.cpb_mlp.0", f"{here}.positions.up"),
            Row(f"{there}.cpb_mlp.2.weight", f"{here}.positions.down.weight", same),
        ]
    return rows
