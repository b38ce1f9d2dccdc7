"""Hybrid ViTs of timm, import and export: a ResNet of Big Transfer before a ViT (``vit_base_r50_s16_224``).

    timm                                            Regard
    patch_embed.backbone.stem.conv, norm            stem.conv, norm
    patch_embed.backbone.stages.{}.blocks.{}        stem.stages.{}.blocks.{}
    ....downsample                                  ....down
    patch_embed.proj                                stem.embed
    all else                                        as in timm_vit

R+ViT-Ti has no stages; its `backbone` is the `backbone.stem` of the others.

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929; Steiner et al.: How to train your ViT?
2021. arXiv:2106.10270
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.blocks.hybrid import stem_stride
from regard.core.config import from_dict
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Tensor
from regard.core.spec import Spec
from regard.models.vit import Config, ViT
from regard.tokens.patches import grid_size
from regard.weights.checkpoint_formats import (
    Classifier,
    check_model_args,
    check_requirements,
    feedforward_for,
    int_if_square,
    load_image_folder,
    save_for_timm,
    timm_architecture,
    timm_image_size,
    timm_preprocessing,
)
from regard.weights.table import Row, same
from regard.weights.timm import vit as timm_vit

NAMES = {(): "vit_tiny_r_s16_p8_224", (2, 2, 2, 2): "vit_small_r26_s32_224", (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224"}  # fmt: skip
HYBRID = re.compile(r"vit_(tiny|small|base|large)_r(?:26|50)?_s\d+(?:_p\d+)?_\d+")


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    layers = stem_stages(config)
    external = "patch_embed.backbone.stages.{s}.blocks.{b}"
    internal, first = "stem.stages.{s}.blocks.{b}", "patch_embed.backbone.stem" if layers else "patch_embed.backbone"
    rows = [*timm_vit.table(replace(config, stem="patches")), *_pair(first, "stem", "conv", "norm")]
    if layers:
        for n in (1, 2, 3):
            rows += _pair(external, internal, f"conv{n}", f"norm{n}")
        rows += _pair(f"{external}.downsample", f"{internal}.down", "conv", "norm")
    return rows


def stem_stages(config: Config) -> tuple[int, ...]:
    """Return the number of bottlenecks of each stage of a hybrid stem; raise `Unsupported` for other stems."""
    spec = Spec.parse(config.stem) if isinstance(config.stem, str) else None
    if spec is None or spec.name != "hybrid" or spec.args or spec.kwargs.get("base", 64) != 64:
        raise Unsupported(f"timm's hybrid ViT needs stem='hybrid(layers=...)', got {config.stem!r}")
    return tuple(spec.kwargs.get("layers", (3, 4, 9)))


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    """Convert a config.json and its tensors to a Config."""
    name, arguments = timm_architecture(raw)
    if not (found := HYBRID.fullmatch(name)):
        raise Unsupported(f"timm's architecture '{name}' is not supported")
    check_model_args(name, arguments, timm_vit.ARGUMENTS, {})
    try:
        width, _, *patch = state["patch_embed.proj.weight"].shape
        channels = next(x.shape[1] for n, x in state.items() if re.search(r"backbone\.(stem\.)?conv\.weight", n))
        ffn, rows = state["blocks.0.mlp.fc1.weight"].shape[0], state["pos_embed"].shape[1]
    except (KeyError, ValueError, StopIteration):
        raise BadInput("these are not the tensors of a hybrid ViT of timm") from None
    counted: dict[int, int] = {}
    for match in filter(None, (re.search(r"stages\.(\d+)\.blocks\.\d+\.conv1\.weight", n) for n in state)):
        counted[int(match[1])] = counted.get(int(match[1]), 0) + 1
    layers = tuple(counted[n] for n in sorted(counted))
    image, down = timm_image_size(raw), stem_stride(layers)
    grid = grid_size(image, (down * patch[0], down * patch[1]))
    if rows != 1 + grid[0] * grid[1]:
        raise BadInput(
            f"pos_embed has {rows} rows, but images of {image[0]} x {image[1]} pixels have {grid[0]} x {grid[1]} cells"
        )
    values = {
        "num_classes": state["head.weight"].shape[0] if "head.weight" in state else 0,
        "image_size": int_if_square(image),
        "channels": channels,
        "patch_size": int_if_square((patch[0], patch[1])),
        "width": width,
        "heads": arguments.get("num_heads") or timm_vit.HEADS[found[1]],
        "layers": sum(n.endswith(".attn.proj.weight") for n in state),
        "ffn": ffn,
        "stem": f"hybrid(layers={layers})",
        "pool": timm_vit.read_pool(raw, state),
        "feedforward": feedforward_for(str(arguments.get("act_layer") or "gelu"), timm_vit.FEEDS),
    }
    return from_dict(Config, values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    if (layers := stem_stages(config)) not in NAMES:
        raise Unsupported(f"timm has no hybrid ViT with stages of {layers} blocks; it has {', '.join(map(str, NAMES))}")
    timm_vit.check(replace(config, stem="patches"))
    plain = {"num_prefix_tokens": (1, config.num_prefix_tokens == 1), "layer_scale": (None, config.layer_scale is None)}
    check_requirements("timm's hybrid ViT", config, plain)
    return timm_vit.folder_config(NAMES[layers], config) | {"global_pool": "token" if config.pool == "token" else "avg"}


def load(folder: str | Path) -> tuple[ViT, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, ViT, table, timm_preprocessing)


def save(folder: str | Path, what: ViT | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, ViT, export_config, table)


def _pair(external: str, internal: str, conv: str, norm: str) -> list[Row]:
    """Return the rows of a convolution and its norm."""
    names = (f"{conv}.weight", f"{norm}.weight", f"{norm}.bias")
    return [Row(f"{external}.{name}", f"{internal}.{name}", same) for name in names]
