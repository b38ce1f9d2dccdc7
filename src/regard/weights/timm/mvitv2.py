"""MViTv2 of timm (mvitv2_tiny to mvitv2_huge_cls), import and export.

    timm                                            Regard
    patch_embed.proj, cls_token                     stem.embed, first
    stages.{s}.blocks.{b}.attn.qkv                  stages.{s}.{b}.mix.qkv: q, k, v, each by head
    ....attn.pool_q, norm_q (k, v)                  ....mix.q_pool.filter, q_pool.norm
    ....attn.rel_pos_h, rel_pos_w                   ....mix.positions.tables.0, tables.1
    ....shortcut_proj_attn, shortcut_proj_mlp       ....mix_skip, feed_skip
    norm, head.fc                                   norm, head

    model, task = timm_mvitv2.load(folder)         config.json and model.safetensors, as timm's save_for_hf writes them
    timm_mvitv2.save("mine", model)                 timm.create_model("local-dir:mine", pretrained=True) reads it

A folder of timm names one of the published sizes, so only these can be exported. Tables of relative positions in timm
are for square images whose sides the strides divide; Regard interpolates them for other sizes.

Li et al.: MViTv2. CVPR 2022. arXiv:2112.01526; Wightman: PyTorch Image Models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.models.mvit import SIZES, Config, MViT
from regard.weights.checkpoint_formats import (
    Classifier,
    check_model_args,
    check_requirements,
    int_if_square,
    load_image_folder,
    requires_softmax,
    save_for_timm,
    timm_architecture,
    timm_config,
    timm_image_size,
    timm_preprocessing,
)
from regard.weights.table import Row, linear, same, view

# timm -> Regard
ARCHITECTURES = {
    "mvitv2_tiny": "t",
    "mvitv2_small": "s",
    "mvitv2_base": "b",
    "mvitv2_large": "l",
    "mvitv2_small_cls": "s-token",
    "mvitv2_base_cls": "b-token",
    "mvitv2_large_cls": "l-token",
    "mvitv2_huge_cls": "h-token",
}


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = [*linear("patch_embed.proj", "stem.embed"), *linear("norm", "norm")]
    if config.class_token:
        rows.append(Row("cls_token", "prefix_tokens", view("1 n c -> n c")))
    there, here = "stages.{s}.blocks.{b}", "stages.{s}.{b}"
    for part in ("q", "k", "v"):
        rows.append(Row(f"{there}.attn.pool_{part}.weight", f"{here}.mix.{part}_pool.filter.weight", same))
        rows += linear(f"{there}.attn.norm_{part}", f"{here}.mix.{part}_pool.norm")
    rows += [
        Row(f"{there}.attn.rel_pos_h", f"{here}.mix.positions.tables.0", same),
        Row(f"{there}.attn.rel_pos_w", f"{here}.mix.positions.tables.1", same),
        *linear(f"{there}.norm1", f"{here}.mix_norm"),
        *linear(f"{there}.attn.qkv", f"{here}.mix.qkv"),
        *linear(f"{there}.attn.proj", f"{here}.mix.out"),
        *linear(f"{there}.shortcut_proj_attn", f"{here}.mix_skip"),
        *linear(f"{there}.norm2", f"{here}.feed_norm"),
        *linear(f"{there}.mlp.fc1", f"{here}.feed.up"),
        *linear(f"{there}.mlp.fc2", f"{here}.feed.down"),
        *linear(f"{there}.shortcut_proj_mlp", f"{here}.feed_skip"),
    ]
    return rows + (linear("head.fc", "head") if config.num_classes else [])


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    """Convert a config.json and its tensors to a Config."""
    name, arguments = timm_architecture(raw)
    if name not in ARCHITECTURES:
        raise Unsupported(f"timm's architecture '{name}' is not supported; choose one of: {', '.join(ARCHITECTURES)}")
    pool = "token" if name.endswith("_cls") else "avg"
    check_model_args(name, arguments, {"img_size", "in_chans", "num_classes"}, {"global_pool": pool})
    if "patch_embed.proj.weight" not in state:
        raise BadInput("these are not the tensors of an MViTv2 of timm: patch_embed is missing")
    return Config(
        **SIZES[ARCHITECTURES[name]],
        num_classes=len(state["head.fc.weight"]) if "head.fc.weight" in state else 0,
        image_size=int_if_square(timm_image_size(raw)),
        channels=state["patch_embed.proj.weight"].shape[1],
        dropout=float(arguments.get("drop_rate", 0.0)),
        drop_path=float(arguments.get("drop_path_rate", 0.0)),
    )


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json: an architecture of timm and its arguments."""
    _check(config)
    free = {name: getattr(config, name) for name in ("num_classes", "image_size", "channels", "dropout", "drop_path")}
    plain = {name: replace(Config(**SIZES[size]), **free) for name, size in ARCHITECTURES.items()}
    found = next((name for name, each in plain.items() if asdict(each) == asdict(config)), None)
    if found is None or not isinstance(config.image_size, int):
        raise Unsupported("timm's MViTv2 has only the published sizes and square images; this model is another")
    arguments: dict[str, Any] = {"img_size": config.image_size, "in_chans": config.channels}
    arguments |= {"drop_rate": config.dropout, "drop_path_rate": config.drop_path}
    return timm_config(found, config, config.width * 8, arguments)


def load(folder: str | Path) -> tuple[MViT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, MViT, table, timm_preprocessing)


def save(folder: str | Path, what: MViT | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, MViT, export_config, table)


def _check(config: Config) -> None:
    """Raise `Unsupported` for a model that the format cannot represent."""
    needed = {
        "num_frames": (None, config.num_frames is None),
        "positions": ("relative", config.positions == "relative"),
        "residual_pooling": ("all", config.residual_pooling == "all"),
        "pooling": ("conv", config.pooling == "conv"),
        "attention": requires_softmax(config),
    }
    check_requirements("timm's MViTv2", config, needed)
