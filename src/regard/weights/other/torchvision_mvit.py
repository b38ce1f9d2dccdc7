"""MViT of torchvision, for clips (mvit_v1_b, mvit_v2_s), import and export.

    torchvision                                 Regard
    conv_proj                                   stem.embed
    pos_encoding.class_token                    first
    pos_encoding.spatial_pos, temporal_pos      positions.space, positions.time; of the class token: positions.before
    blocks.{n}.attn.qkv                         stages.{s}.{b}.mix.qkv: q, k, v, each by head
    ....attn.pool_q.pool, .norm_act.0 (k, v)    ....mix.q_pool.filter, q_pool.norm
    ....attn.rel_pos_t, rel_pos_h, rel_pos_w    ....mix.positions.tables.0, .1, .2
    ....project                                 ....feed_skip (v1), mix_skip (v2)
    norm, head.1                                norm, head

torchvision numbers blocks through all stages, Regard within each stage.

Fan et al.: Multiscale Vision Transformers. ICCV 2021. arXiv:2104.11227; Li et al.: MViTv2. CVPR 2022. arXiv:2112.01526
"""

from __future__ import annotations

from regard.models.mvit import Config
from regard.weights.checkpoint_formats import check_requirements, requires_softmax
from regard.weights.table import Row, linear, same, view


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = [
        *linear("conv_proj", "stem.embed"),
        Row("pos_encoding.class_token", "prefix_tokens", view("c -> 1 c")),
        *linear("norm", "norm"),
        *(linear("head.1", "head") if config.num_classes else []),
    ]
    if config.positions == "added":
        rows += [
            Row("pos_encoding.spatial_pos", "positions.space", same),
            Row("pos_encoding.temporal_pos", "positions.time", same),
            Row("pos_encoding.class_pos", "positions.before", view("c -> 1 c")),
        ]
    places = [(stage, layer) for stage, layers in enumerate(config.layers) for layer in range(layers)]
    for number, (stage, layer) in enumerate(places):
        rows += _block(f"blocks.{number}", f"stages.{stage}.{layer}", config)
    return rows


def _block(there: str, here: str, config: Config) -> list[Row]:
    rows = []
    for part in ("q", "k", "v"):
        rows.append(Row(f"{there}.attn.pool_{part}.pool.weight", f"{here}.mix.{part}_pool.filter.weight", same))
        rows += linear(f"{there}.attn.pool_{part}.norm_act.0", f"{here}.mix.{part}_pool.norm")
    if config.positions == "relative":
        tables = enumerate("thw")
        rows += [Row(f"{there}.attn.rel_pos_{axis}", f"{here}.mix.positions.tables.{n}", same) for n, axis in tables]
    skip = "feed_skip" if config.widen_in == "feedforward" else "mix_skip"
    return [
        *rows,
        *linear(f"{there}.norm1", f"{here}.mix_norm"),
        *linear(f"{there}.attn.qkv", f"{here}.mix.qkv"),
        *linear(f"{there}.attn.project.0", f"{here}.mix.out"),
        *linear(f"{there}.norm2", f"{here}.feed_norm"),
        *linear(f"{there}.mlp.0", f"{here}.feed.up"),
        *linear(f"{there}.mlp.3", f"{here}.feed.down"),
        *linear(f"{there}.project", f"{here}.{skip}"),
    ]


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "num_frames": ("16 or another number", config.num_frames is not None),
        "class_token": (True, config.class_token),
        "residual_pooling": ("patches or none", config.residual_pooling in ("patches", "none")),
        "pooling": ("conv", config.pooling == "conv"),
        "attention": requires_softmax(config),
    }
    check_requirements("torchvision's MViT", config, needed)
