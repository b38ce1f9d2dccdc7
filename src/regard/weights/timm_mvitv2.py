"""MViTv2 of timm (mvitv2_tiny to mvitv2_huge_cls), both ways.

    theirs                                          ours
    patch_embed.proj, cls_token                     stem.embed, first
    stages.{s}.blocks.{b}.attn.qkv                  stages.{s}.{b}.mix.qkv: q, k, v, each by head
    ....attn.pool_q, norm_q (k, v)                  ....mix.q_pool.filter, q_pool.norm
    ....attn.rel_pos_h, rel_pos_w                   ....mix.positions.tables.0, tables.1
    ....shortcut_proj_attn, shortcut_proj_mlp       ....mix_skip, feed_skip
    norm, head.fc                                   norm, head

Their tables of relative positions are for square images whose sides the strides divide, and other sizes are other
checkpoints; ours stretch theirs where an image of another size comes.

Li et al.: MViTv2. CVPR 2022. arXiv:2112.01526; Wightman: PyTorch Image Models.
"""

from __future__ import annotations

from regard.models.mvit import Config
from regard.weights.table import Row, same, view
from regard.weights.theirs import refuse, softmax_only


def table(config: Config) -> list[Row]:
    """The rows for a model of ours with this configuration."""
    _check(config)
    rows = [*_linear("patch_embed.proj", "stem.embed"), *_linear("norm", "norm")]
    if config.class_token:
        rows.append(Row("cls_token", "first", view("1 n c -> n c")))
    there, here = "stages.{s}.blocks.{b}", "stages.{s}.{b}"
    for part in ("q", "k", "v"):
        rows.append(Row(f"{there}.attn.pool_{part}.weight", f"{here}.mix.{part}_pool.filter.weight", same))
        rows += _linear(f"{there}.attn.norm_{part}", f"{here}.mix.{part}_pool.norm")
    rows += [
        Row(f"{there}.attn.rel_pos_h", f"{here}.mix.positions.tables.0", same),
        Row(f"{there}.attn.rel_pos_w", f"{here}.mix.positions.tables.1", same),
        *_linear(f"{there}.norm1", f"{here}.mix_norm"),
        *_linear(f"{there}.attn.qkv", f"{here}.mix.qkv"),
        *_linear(f"{there}.attn.proj", f"{here}.mix.out"),
        *_linear(f"{there}.shortcut_proj_attn", f"{here}.mix_skip"),
        *_linear(f"{there}.norm2", f"{here}.feed_norm"),
        *_linear(f"{there}.mlp.fc1", f"{here}.feed.up"),
        *_linear(f"{there}.mlp.fc2", f"{here}.feed.down"),
        *_linear(f"{there}.shortcut_proj_mlp", f"{here}.feed_skip"),
    ]
    return rows + (_linear("head.fc", "head") if config.classes else [])


def _linear(theirs: str, ours: str) -> list[Row]:
    """A linear map, a convolution or a norm: a weight and a bias."""
    return [Row(f"{theirs}.{part}", f"{ours}.{part}", same) for part in ("weight", "bias")]


def _check(config: Config) -> None:
    """Refuse what timm's have no place for."""
    needed = {
        "frames": (0, not config.frames),
        "positions": ("relative", config.positions == "relative"),
        "residual": ("all", config.residual == "all"),
        "pooling": ("conv", config.pooling == "conv"),
        "attention": softmax_only(config),
    }
    refuse("timm's MViTv2", config, needed)
