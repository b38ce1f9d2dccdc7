"""ViT of timm, import and export: its VisionTransformer with a class token or a mean, layer scale, registers.

    timm                                          Regard
    patch_embed.proj                              stem.embed
    cls_token, reg_token                          first
    pos_embed                                     positions.table; without rows for the first ones: learned(prefix=0)
    blocks.{}.attn.qkv, rows by q, k, v           one qkv matrix, rows by head
    blocks.{}.ls1, ls2                            mix_scale, feed_scale
    norm                                          encoder.norm
    fc_norm                                       pool_norm (pool mean_norm)

    model, task = timm_vit.load(folder)          config.json and model.safetensors, as timm's save_for_hf writes them
    timm_vit.save("mine", model)                  timm.create_model("local-dir:mine", pretrained=True) reads it

The Config is inferred from the tensors, and the number of heads from the name of the architecture. Plain ones are
supported (vit_base_patch16_224, deit3_..., ..._gap_..., ..._dinov2); others with the same tensor names raise an error.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929
Wightman: PyTorch Image Models. 2019. doi:10.5281/zenodo.4414861
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor, pair
from regard.core.spec import Spec
from regard.models.vit import Config, ViT
from regard.tokens.patches import grid_size
from regard.weights.checkpoint_formats import (
    Classifier,
    add_zero_biases,
    check_model_args,
    check_requirements,
    feedforward_for,
    int_if_square,
    load_image_folder,
    requires_feedforward,
    requires_softmax,
    requires_whole_patches,
    save_for_timm,
    timm_architecture,
    timm_config,
    timm_image_size,
    timm_preprocessing,
)
from regard.weights.table import Row, concat, linear, same, view

FEEDS = {name: name for name in ("gelu", "gelu_tanh", "relu", "silu")}  # act_layer -> feedforward
HEADS = {"tiny": 3, "small": 6, "medium": 8, "base": 12, "large": 16, "huge": 16, "giant": 16, "gigantic": 16}
PLAIN = re.compile(r"(?:vit|deit|deit3)_(\w+?)(?:_distilled)?_patch\d+(?:_gap)?(?:_\d+|_dinov2|_reg4_dinov2)")
ARGUMENTS = {  # of the constructor in timm; what the tensors show is not read from them
    *("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "num_heads", "mlp_ratio"),
    *("global_pool", "class_token", "no_embed_class", "reg_tokens", "init_values", "fc_norm", "act_layer"),
    *("dynamic_img_size", "dynamic_img_pad", "qkv_bias"),
}


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    check(config)
    rows = shared_rows(config)
    if config.num_prefix_tokens == 1:
        rows.append(Row("cls_token", "prefix_tokens", view("one p c -> (one p) c", one=1)))
    elif config.num_prefix_tokens > 1:
        rows.append(
            Row(("cls_token", "reg_token"), "prefix_tokens", concat_prefix_tokens(1, config.num_prefix_tokens - 1))
        )
    return rows


def shared_rows(config: Config) -> list[Row]:
    """Return all rows except those of prefix tokens."""
    qkv = view("(three h d) ... -> (h three d) ...", three=3, h=config.heads)
    scales = [("ls1.gamma", "mix_scale.gamma"), ("ls2.gamma", "feed_scale.gamma")]
    late = config.pool == "mean_norm"
    return [
        Row("pos_embed", "positions.table", view("one n c -> (one n) c", one=1)),
        *linear("patch_embed.proj", "stem.embed"),
        *linear("blocks.{}.norm1", "encoder.blocks.{}.mix_norm"),
        *linear("blocks.{}.attn.qkv", "encoder.blocks.{}.mix.project.qkv", qkv),
        *linear("blocks.{}.attn.proj", "encoder.blocks.{}.mix.join.out"),
        *linear("blocks.{}.norm2", "encoder.blocks.{}.feed_norm"),
        *linear("blocks.{}.mlp.fc1", "encoder.blocks.{}.feed.up"),
        *linear("blocks.{}.mlp.fc2", "encoder.blocks.{}.feed.down"),
        *(
            Row(f"blocks.{{}}.{a}", f"encoder.blocks.{{}}.{b}", same)
            for a, b in scales
            if config.layer_scale is not None
        ),
        *linear("fc_norm" if late else "norm", "pool_norm" if late else "encoder.norm"),
        *(linear("head", "head") if config.num_classes else []),
    ]


def concat_prefix_tokens(*lengths: int) -> Any:
    """Concatenate learned tokens, 1 n C each."""
    parts = ["one p c -> (one p) c"] * len(lengths)
    return concat(*parts, lengths=lengths, along="p", then="p c -> p c", one=1)


def check(config: Config) -> None:
    """Raise `Unsupported` for a model that timm's ViT cannot represent."""
    place = Spec.parse(config.positions)
    rows = (
        place.kwargs.get("prefix", config.num_prefix_tokens) in (0, config.num_prefix_tokens)
        and place.kwargs.keys() <= _POSITION_ARGUMENTS
    )
    needed = {
        "attention": requires_softmax(config),
        "feedforward": requires_feedforward(FEEDS, config),
        "stem": ("patches", config.stem == "patches"),
        "positions": ("learned", place.name == "learned" and rows and not place.args),
        "representation_size": (None, config.representation_size is None),
        "eps": (1e-6, config.eps == 1e-6),
        "image_size": requires_whole_patches(config),
    }
    check_requirements("timm's ViT", config, needed)


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    """Convert a config.json and its tensors to a Config."""
    return from_dict(Config, import_fields(raw, state))


def import_fields(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the fields of a Config."""
    name, arguments = timm_architecture(raw)
    found = PLAIN.fullmatch(name)
    if not found or found[1] not in HEADS or (found[1] == "giant" and "dinov2" in name):
        raise Unsupported(f"timm's architecture '{name}' is not supported")
    check_model_args(name, arguments, ARGUMENTS, {})
    try:
        (width, channels, *patch), many = state["patch_embed.proj.weight"].shape, state["pos_embed"].shape[1]
        ffn = state["blocks.0.mlp.fc1.weight"].shape[0]
    except (KeyError, ValueError):
        raise BadInput(
            "these are not the tensors of a ViT of timm: patch_embed, pos_embed or blocks are missing"
        ) from None
    prefix = sum(state[name].shape[1] for name in ("cls_token", "dist_token", "reg_token") if name in state)
    image = timm_image_size(raw)
    grid = grid_size(image, (patch[0], patch[1]))
    bare = many == grid[0] * grid[1]
    if not bare and many != grid[0] * grid[1] + prefix:
        raise BadInput(
            f"pos_embed has {many} rows, but images of {image[0]} x {image[1]} pixels have "
            f"{grid[0]} x {grid[1]} patches"
        )
    return {
        "num_classes": state["head.weight"].shape[0] if "head.weight" in state else 0,
        "image_size": int_if_square(image),
        "channels": channels,
        "patch_size": int_if_square((patch[0], patch[1])),
        "width": width,
        "heads": arguments.get("num_heads") or (16 if name == "vit_base_patch16_gap_224" else HEADS[found[1]]),
        "layers": sum(name.endswith(".attn.proj.weight") for name in state),
        "ffn": ffn,
        "num_prefix_tokens": prefix,
        "pool": read_pool(raw, state),
        "layer_scale": (arguments.get("init_values") or 1e-5) if "blocks.0.ls1.gamma" in state else None,
        "positions": "learned(prefix=0)" if bare and prefix else "learned",
        "feedforward": feedforward_for(str(arguments.get("act_layer") or "gelu"), FEEDS),
    }


def read_pool(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> str:
    """Return what the head reads: the class token, or the mean of the tokens, before the last norm or after it."""
    name, arguments = timm_architecture(raw)
    pool = str(arguments.get("global_pool", raw.get("global_pool") or ("avg" if "_gap_" in name else "token")))
    if pool not in ("avg", "token"):
        raise Unsupported(f"pooling '{pool}' of timm's {name} is not supported; expected 'token' or 'avg'")
    return "token" if pool == "token" else "mean_norm" if "fc_norm.weight" in state else "mean"


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json: an architecture of timm and its arguments."""
    check(config)
    return folder_config("vit_base_patch16_224", config) | {"global_pool": "token" if config.pool == "token" else "avg"}


def folder_config(architecture: str, config: Config) -> dict[str, Any]:
    """Return a config.json of timm: `architecture` with all arguments from a Config."""
    size, hidden = list(pair(config.image_size)), config.ffn or 4 * config.width
    arguments = {
        "img_size": size,
        "patch_size": list(pair(config.patch_size)),
        "in_chans": config.channels,
        "embed_dim": config.width,
        "depth": config.layers,
        "num_heads": config.heads,
        "mlp_ratio": hidden / config.width,
        "global_pool": "token" if config.pool == "token" else "avg",
        "class_token": config.num_prefix_tokens > 0,
        "no_embed_class": config.num_prefix_tokens > 0 and Spec.parse(config.positions).kwargs.get("prefix") == 0,
        "init_values": config.layer_scale,
        "act_layer": {internal: external for external, internal in FEEDS.items()}[config.feedforward],
    }
    arguments |= (
        {"reg_tokens": config.num_prefix_tokens - 1}
        if config.num_prefix_tokens > 1 and "distilled" not in architecture
        else {}
    )
    arguments |= {} if config.pool == "token" else {"fc_norm": config.pool == "mean_norm"}
    return timm_config(architecture, config, config.width, {k: v for k, v in arguments.items() if v is not None})


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, ViT, table, timm_preprocessing, add_missing_biases)


def save(folder: str | Path, what: ViT | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, ViT, export_config, table)


def add_missing_biases(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add zero biases of q, k and v to tensors of a model with qkv_bias=False."""
    return add_zero_biases(state, "attn.qkv")


_POSITION_ARGUMENTS = {"prefix", "antialias"}  # supported arguments of learned positions
