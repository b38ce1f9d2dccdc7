"""ViT of lucidrains' vit-pytorch, both ways.

    theirs                                        ours
    to_patch_embedding: norm, linear, norm        stem="normed"; pixels of a patch by rows, columns, channels there,
                                                  by channels, rows, columns here
    cls_token, pos_embedding                      prefix_tokens, positions.table
    to_qkv without a bias, rows by q, k, v        one qkv matrix, rows by head; its bias is zero
    layers.{}.0.norm, layers.{}.1.net.0           mix_norm, feed_norm
    pool="cls", "mean"                            pool token, mean

    config = vit_pytorch.ours(theirs.state_dict(), heads=16)
    read(vit_pytorch.table(config), vit_pytorch.named(theirs.state_dict()), model)

Its files are bare state dicts, in which the number of heads cannot be seen: it has to be said. Heads of another width
than width / heads (`dim_head`) have no place here, nor a mean that counts a class token, as older versions took it.

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
    """The rows for a model of ours with this configuration."""
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
    return [*rows, Row("cls_token", None, zero(0, config.width))]  # theirs is there, and empty


def import_config(
    external: Mapping[str, Tensor], heads: int, channels: int = 3, image_size: int | tuple[int, int] | None = None
) -> Config:
    """Our configuration from their tensors; patches are taken to be square, and the image where none is given."""
    state = normalize_keys(external)
    try:
        width, inside = state["to_patch_embedding.2.weight"].shape
        inner, ffn = state["transformer.layers.0.0.to_qkv.weight"].shape[0], state["transformer.layers.0.1.net.1.bias"]
        many, prefix = len(state["pos_embedding"]) - len(state["cls_token"]), len(state["cls_token"])
    except (KeyError, ValueError):
        raise BadInput(
            "these are not the tensors of a ViT of vit-pytorch: its stem or its first block is not there"
        ) from None
    if inner != 3 * width or width % heads:
        raise Unsupported(
            f"their heads have {inner // 3 // heads} channels; only width / heads = {width / heads:g} can be read"
        )
    patch, side = math.isqrt(inside // channels), math.isqrt(many)
    if patch * patch * channels != inside or (image_size is None and side * side != many):
        raise BadInput(f"{inside} pixel values and {many} places are no squares; say channels=... and image_size=...")
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
    """Their tensors in the shapes of today: older versions gave these two an axis for the batch."""
    old = {
        name: external[name][0]
        for name in ("cls_token", "pos_embedding")
        if name in external and external[name].ndim == 3
    }
    return {**external, **old}


def _check(config: Config) -> None:
    """Refuse what vit-pytorch's ViT has no place for; it reads images of one size only."""
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
