"""Swin of timm, import and export.

    timm                                    Regard
    patch_embed                             stem, embed_norm
    layers.{s}.downsample                   stages.{s}.merge
    attn.qkv, rows by q, k and v            project.qkv, rows by head
    attn.relative_position_bias_table       positions.table

    model, task = timm_swin.load(folder)   config.json and model.safetensors, as timm's save_for_hf writes them
    timm_swin.save("mine", model)           timm.create_model("local-dir:mine", pretrained=True) reads it

timm shifts the grid before padding it to whole windows, and attends to the padding: padding="shifted". It makes a
difference only where windows do not divide a grid. Where patch merging meets an odd grid, timm up to 1.0.28 chose the
windows for a grid rounded down (240 pixels with windows of 7: the last stage is not shifted); Regard rounds up, as
newer versions do, and warns. Swin-S3, with other windows in every stage, is not supported.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030
Wightman: PyTorch Image Models. 2019. doi:10.5281/zenodo.4414861
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Pair, Tensor, pair
from regard.models.swin import Config, Swin
from regard.tokens.patches import grid_size
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

log = logging.getLogger("regard")
C = TypeVar("C")

PLAIN = re.compile(r"swin_(?:tiny|small|base|large)_patch4_window(?P<window>\d+)_(?P<image>\d+)")


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    _check(config)
    rows = shared_rows(config)
    for stage, heads in enumerate(config.heads):
        there, here = f"layers.{stage}.blocks.{{}}.attn", f"stages.{stage}.blocks.{{}}.mix"
        by_head = view("(three h d) ... -> (h three d) ...", three=3, h=heads)
        rows += [
            Row(f"{there}.relative_position_bias_table", f"{here}.positions.table", same),
            *linear(f"{there}.qkv", f"{here}.project.qkv", by_head),
        ]
    return rows


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    """Convert a config.json and its tensors to a Config."""
    found, _ = import_fields(raw, state, PLAIN, "relative_position_bias_table", 1)
    return warn_rounding(from_dict(Config, found))


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json: an architecture of timm and its arguments."""
    _check(config)
    return export_fields(warn_rounding(config), "swin_tiny_patch4_window7_224", {})


def load(folder: str | Path) -> tuple[Swin, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, Swin, table, timm_preprocessing)


def save(folder: str | Path, what: Swin | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, Swin, export_config, table)


def _check(config: Config) -> None:
    check("timm's Swin", config, "table", "shifted")


# -- shared by Swin and Swin v2 ----------------------------------------------------------------------------------------


def shared_rows(config: Any) -> list[Row]:
    """Return all rows except those of attention."""
    rows = [
        *linear("patch_embed.proj", "stem.embed"),
        *linear("patch_embed.norm", "embed_norm"),
        *linear("norm", "norm"),
    ]
    for stage in range(len(config.layers)):
        there, here = f"layers.{stage}.blocks.{{}}", f"stages.{stage}.blocks.{{}}"
        if stage:
            rows += linear(f"layers.{stage}.downsample.norm", f"stages.{stage}.merge.norm")
            rows += [Row(f"layers.{stage}.downsample.reduction.weight", f"stages.{stage}.merge.narrow.weight", same)]
        rows += [
            *linear(f"{there}.norm1", f"{here}.mix_norm"),
            *linear(f"{there}.attn.proj", f"{here}.mix.join.out"),
            *linear(f"{there}.norm2", f"{here}.feed_norm"),
            *linear(f"{there}.mlp.fc1", f"{here}.feed.up"),
            *linear(f"{there}.mlp.fc2", f"{here}.feed.down"),
        ]
    return rows + (linear("head.fc", "head") if config.num_classes else [])


def check(whose: str, config: Any, positions: str, padding: str) -> None:
    """Raise `Unsupported` for a model that the format cannot represent; `padding` is how the format pads windows."""
    whole = all(side % min(side, config.window_size) == 0 for grid in stage_grids(config) for side in grid)
    needed = {
        "attention": requires_softmax(config),
        "positions": (positions, config.positions == positions),
        "padding": (padding, whole or config.padding == padding),
    }
    check_requirements(whose, config, needed)


def stage_grids(config: Any) -> list[Pair]:
    """Return the grid of tokens of every stage for images of the training size."""
    return [grid_size(config.image_size, config.patch_size * 2**stage) for stage in range(len(config.layers))]


def rounded_windows(config: Any) -> str:
    """Return which windows differ if grids are rounded down where patch merging meets an odd one; "" if none do.

    A grid of 15, merged in pairs, is one of 8. Built for one of 7 its windows of 7 are not shifted.
    """
    for stage, grid in enumerate(stage_grids(config)):
        for side, pixels in zip(grid, pair(config.image_size), strict=True):
            rounded = pixels // (config.patch_size * 2**stage)
            if rounded < side and rounded <= config.window_size:
                return f"the windows of stage {stage} for a grid side of {rounded}, but {pixels} pixels have {side}"
    return ""


def warn_rounding(config: C) -> C:
    """Return a Config; log a warning where older versions of timm choose other windows."""
    if windows := rounded_windows(config):
        log.warning("timm up to 1.0.28 chooses %s; newer versions round up, as Regard does", windows)
    return config


def import_fields(
    raw: Mapping[str, Any], state: Mapping[str, Tensor], plain: re.Pattern[str], counts: str, axis: int
) -> tuple[dict[str, Any], re.Match[str]]:
    """Return the fields of a Config, from a config.json and tensors; `counts` is a tensor with an axis of heads."""
    name, arguments = timm_architecture(raw)
    if (found := plain.fullmatch(name)) is None:
        raise Unsupported(f"timm's architecture '{name}' is not supported")
    check_model_args(name, arguments, _ARGUMENTS, {"global_pool": "avg"})
    try:
        width, channels, patch, _ = state["patch_embed.proj.weight"].shape
        hidden = len(state["layers.0.blocks.0.mlp.fc1.weight"])
    except (KeyError, ValueError):
        raise BadInput("these are not the tensors of a Swin of timm: patch_embed or layers are missing") from None
    last = f".blocks.0.attn.{counts}"
    heads = {int(key.split(".")[1]): value.shape[axis] for key, value in state.items() if key.endswith(last)}
    layers = [0] * len(heads)
    for key in state:
        if key.endswith(".attn.proj.weight"):
            layers[int(key.split(".")[1])] += 1
    return {
        "num_classes": len(state["head.fc.weight"]) if "head.fc.weight" in state else 0,
        "image_size": int_if_square(timm_image_size(raw, int(found["image"]))),
        "channels": channels,
        "patch_size": patch,
        "width": width,
        "heads": [heads[stage] for stage in sorted(heads)],
        "layers": layers,
        "window_size": arguments.get("window_size") or int(found["window"]),
        "mlp_ratio": hidden / width,
        "drop_path": float(arguments.get("drop_path_rate", 0.1)),
        "padding": "shifted",
    }, found


def export_fields(config: Any, architecture: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config.json of timm: `architecture` with all arguments from a Config."""
    arguments = {
        "img_size": list(pair(config.image_size)),
        "patch_size": config.patch_size,
        "in_chans": config.channels,
        "embed_dim": config.width,
        "depths": list(config.layers),
        "num_heads": list(config.heads),
        "window_size": config.window_size,
        "mlp_ratio": config.mlp_ratio,
        "drop_path_rate": config.drop_path,
        "strict_img_size": False,  # for v2, where windows do not divide a grid
    }
    return timm_config(architecture, config, config.width * 2 ** (len(config.layers) - 1), arguments | dict(more))


_ARGUMENTS = {  # supported arguments of the constructor in timm
    *("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depths", "num_heads", "window_size"),
    *("mlp_ratio", "pretrained_window_sizes", "strict_img_size"),
}
