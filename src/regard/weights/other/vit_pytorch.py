"""ViT of lucidrains' vit-pytorch, import and export.

    vit-pytorch                                   Regard
    to_patch_embedding: norm, linear, norm        stem="normed"; pixels of a patch by rows, columns, channels there,
                                                  by channels, rows, columns here
    cls_token, pos_embedding                      prefix_tokens, positions.table
    to_qkv without a bias, rows by q, k, v        one qkv matrix, rows by head; its bias is zero
    layers.{}.0.norm, layers.{}.1.net.0           mix_norm, feed_norm
    pool="cls", "mean"                            pool token, mean

    config = vit_pytorch.import_config(module.state_dict(), heads=16)
    import_state_dict(vit_pytorch.table(config), vit_pytorch.normalize_keys(module.state_dict()), model)

Files are bare state dicts, which do not show the number of heads. Heads of another width than width / heads
(`dim_head`) are not supported, nor a mean that includes a class token, as in older versions.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929
Wang: vit-pytorch. https://github.com/lucidrains/vit-pytorch
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor, pair
from regard.models.vit import Config
from regard.weights.checkpoint_formats import check_requirements, requires_softmax
from regard.weights.table import Row, linear, same, view, zero


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    (p, q), c = pair(config.patch_size), config.channels
    there, here = "transformer.layers.{}", "encoder.blocks.{}"
    qkv = view("(three h d) c -> (h three d) c", three=3, h=config.heads)
    pixels = {part: view("(p q c) -> (c p q)", p=p, q=q, c=c) for part in ("weight", "bias")}
    rows = [
        *(Row(f"to_patch_embedding.1.{part}", f"stem.pixel_norm.{part}", op) for part, op in pixels.items()),
        Row("to_patch_embedding.2.weight", "stem.embed.weight", view("w (p q c) -> w (c p q)", p=p, q=q, c=c)),
        Row("to_patch_embedding.2.bias", "stem.embed.bias", same),
        *linear("to_patch_embedding.3", "stem.norm"),
        Row("pos_embedding", "positions.table", same),
        *linear(f"{there}.0.norm", f"{here}.mix_norm"),
        Row(f"{there}.0.to_qkv.weight", f"{here}.mix.project.qkv.weight", qkv),
        Row(None, f"{here}.mix.project.qkv.bias", zero()),
        *linear(f"{there}.0.to_out.0", f"{here}.mix.join.out"),
        *linear(f"{there}.1.net.0", f"{here}.feed_norm"),
        *linear(f"{there}.1.net.1", f"{here}.feed.up"),
        *linear(f"{there}.1.net.4", f"{here}.feed.down"),
        *linear("transformer.norm", "encoder.norm"),
        *(linear("mlp_head", "head") if config.num_classes else []),
    ]
    if config.num_prefix_tokens:
        return [*rows, Row("cls_token", "prefix_tokens", same)]
    return [*rows, Row("cls_token", None, zero(0, config.width))]  # present, but empty


def import_config(
    external: Mapping[str, Tensor], heads: int, channels: int = 3, image_size: int | tuple[int, int] | None = None
) -> Config:
    """Infer a Config from tensors; patches must be square, and images unless `image_size` is given."""
    state = normalize_keys(external)
    try:
        width, inside = state["to_patch_embedding.2.weight"].shape
        inner, ffn = state["transformer.layers.0.0.to_qkv.weight"].shape[0], state["transformer.layers.0.1.net.1.bias"]
        many, prefix = len(state["pos_embedding"]) - len(state["cls_token"]), len(state["cls_token"])
    except (KeyError, ValueError):
        raise BadInput(
            "these are not the tensors of a ViT of vit-pytorch: the stem or the first block is missing"
        ) from None
    if inner != 3 * width or width % heads:
        raise Unsupported(f"head width must be width / heads = {width / heads:g}, got {inner // 3 // heads}")
    patch, side = math.isqrt(inside // channels), math.isqrt(many)
    if patch * patch * channels != inside or (image_size is None and side * side != many):
        raise BadInput(f"{inside} pixel values and {many} patches are no squares; pass channels=... and image_size=...")
    return Config(
        num_classes=len(state["mlp_head.bias"]) if "mlp_head.bias" in state else 0,
        image_size=side * patch if image_size is None else image_size,
        channels=channels,
        patch_size=patch,
        width=width,
        heads=heads,
        layers=sum(name.endswith(".0.to_qkv.weight") for name in state),
        ffn=len(ffn),
        num_prefix_tokens=prefix,
        pool="token" if prefix else "mean",
        stem="normed",
        eps=1e-5,
    )


def normalize_keys(external: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the batch axis that older versions gave to cls_token and pos_embedding."""
    old = {
        name: external[name][0]
        for name in ("cls_token", "pos_embedding")
        if name in external and external[name].ndim == 3
    }
    return {**external, **old}


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that vit-pytorch's ViT cannot represent; it reads images of one size only."""
    needed = {
        "attention": requires_softmax(config),
        "feedforward": ("gelu", config.feedforward == "gelu"),
        "stem": ("normed", config.stem == "normed"),
        "positions": ("learned", config.positions == "learned"),
        "num_prefix_tokens": (
            1 if config.pool == "token" else 0,
            config.num_prefix_tokens == (1 if config.pool == "token" else 0),
        ),
        "pool": ("token or mean", config.pool in ("token", "mean")),
        "layer_scale": (None, config.layer_scale is None),
        "representation_size": (None, config.representation_size is None),
        "eps": (1e-5, config.eps == 1e-5),
    }
    check_requirements("vit-pytorch", config, needed)
