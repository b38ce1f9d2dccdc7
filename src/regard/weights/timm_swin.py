"""Swin of timm, both ways.

    theirs                                  ours
    patch_embed                             stem, enter_norm
    layers.{s}.downsample                   stages.{s}.merge
    attn.qkv, rows by q, k and v            project.qkv, rows by head
    attn.relative_position_bias_table       positions.table

timm turns the grid before it fills it up to whole windows, and looks at what it filled in: that is padding="shifted".
It makes a difference only where windows do not divide a grid.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from typing import Any

from regard.models.swin import Config
from regard.weights.table import Op, Row, same, view
from regard.weights.theirs import refuse, softmax_only


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    refuse("timm's Swin", config, {"attention": softmax_only(config)})
    rows = outside(config)
    for stage, heads in enumerate(config.heads):
        there, here = f"layers.{stage}.blocks.{{}}.attn", f"stages.{stage}.blocks.{{}}.mix"
        by_head = view("(three h d) ... -> (h three d) ...", three=3, h=heads)
        rows += [
            Row(f"{there}.relative_position_bias_table", f"{here}.positions.table", same),
            *both(f"{there}.qkv", f"{here}.project.qkv", by_head),
        ]
    return rows


def outside(config: Any) -> list[Row]:
    """All that is not who looks at whom: the same in both versions of Swin."""
    rows = [*both("patch_embed.proj", "stem.embed"), *both("patch_embed.norm", "enter_norm"), *both("norm", "norm")]
    for stage in range(len(config.layers)):
        there, here = f"layers.{stage}.blocks.{{}}", f"stages.{stage}.blocks.{{}}"
        if stage:
            rows += both(f"layers.{stage}.downsample.norm", f"stages.{stage}.merge.norm")
            rows += [Row(f"layers.{stage}.downsample.reduction.weight", f"stages.{stage}.merge.narrow.weight", same)]
        rows += [
            *both(f"{there}.norm1", f"{here}.mix_norm"),
            *both(f"{there}.attn.proj", f"{here}.mix.join.out"),
            *both(f"{there}.norm2", f"{here}.feed_norm"),
            *both(f"{there}.mlp.fc1", f"{here}.feed.up"),
            *both(f"{there}.mlp.fc2", f"{here}.feed.down"),
        ]
    return rows + (both("head.fc", "head") if config.classes else [])


def both(theirs: str, ours: str, op: Op = same) -> list[Row]:
    """A linear map or a norm: a weight and a bias."""
    return [Row(f"{theirs}.{part}", f"{ours}.{part}", op) for part in ("weight", "bias")]
