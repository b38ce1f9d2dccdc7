"""ResNets of timm and torchvision, which have the same tensor names, import and export.

timm's ``resnet18``, ``resnet34``, ``resnet50``, ``resnet101``, ``resnet152``, the same with squeeze-and-excitation
(``seresnet18``, ...) and torchvision's functions of these names; not the variants (deep stems, pooled shortcuts,
groups).

    timm                            Regard
    conv1, bn1                      stem.conv, stem.norm
    layer1.{}.conv1, bn1, ...       stages.0.blocks.{}.conv1, norm1, ...
    layer1.{}.downsample.0, 1       stages.0.blocks.{}.down.conv, norm
    layer1.{}.se.fc1, fc2           stages.0.blocks.{}.gate.reduce, expand
    fc                              head

    model, task = timm_resnet.load(folder)       config.json and model.safetensors, as timm's save_for_hf writes them
    timm_resnet.save("mine", model)               timm.create_model("local-dir:mine", pretrained=True) reads it

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition. CVPR 2016. arXiv:1512.03385
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.blocks.resnet_blocks import BLOCKS
from regard.core.config import from_dict
from regard.core.errors import Unsupported
from regard.core.shapes import Tensor
from regard.models.resnet import SIZES, Config, ResNet
from regard.weights.checkpoint_formats import (
    Classifier,
    check_model_args,
    check_requirements,
    int_if_square,
    load_image_folder,
    save_for_timm,
    timm_architecture,
    timm_config,
    timm_image_size,
    timm_preprocessing,
)
from regard.weights.table import Row, linear, same

KNOWN = {f"{timm}resnet{n}": f"{size}{n}" for timm, size in (("", ""), ("se", "se-")) for n in (18, 34, 50, 101, 152)}
_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def table(config: Config) -> list[Row]:
    """Return the rows for a model with this Config."""
    needed = {"stem": ("large", config.stem == "large"), "non_local": ((), not config.non_local)}
    check_requirements("timm's ResNet", config, needed)
    rows = _pair("conv1", "bn1", "stem.conv", "stem.norm")
    for stage in range(len(config.layers)):
        external, internal = f"layer{stage + 1}.{{b}}", f"stages.{stage}.blocks.{{b}}"
        for n in range(1, 3 if config.block == "basic" else 4):
            rows += _pair(f"{external}.conv{n}", f"{external}.bn{n}", f"{internal}.conv{n}", f"{internal}.norm{n}")
        if config.squeeze_excitation:
            rows += linear(f"{external}.se.fc1", f"{internal}.gate.reduce")
            rows += linear(f"{external}.se.fc2", f"{internal}.gate.expand")
        rows += _pair(
            f"{external}.downsample.0", f"{external}.downsample.1", f"{internal}.down.conv", f"{internal}.down.norm"
        )
    if config.norm == "frozen":
        rows = [
            Row(row.external, None, reason="frozen norms count no batches")
            if str(row.external).endswith("num_batches_tracked")
            else row
            for row in rows
        ]
    if config.num_classes:
        rows += linear("fc", "head")
    return rows


def import_config(raw: Mapping[str, Any], state: Mapping[str, Tensor]) -> Config:
    """Convert a config.json and its tensors to a Config."""
    name, arguments = timm_architecture(raw)
    if name not in KNOWN:
        raise Unsupported(f"timm's architecture '{name}' is not supported; choose one of {', '.join(KNOWN)}")
    check_model_args(name, arguments, {"in_chans", "num_classes"}, {"global_pool": "avg", "act_layer": "relu"})
    values = {
        "num_classes": state["fc.weight"].shape[0] if "fc.weight" in state else 0,
        "image_size": int_if_square(timm_image_size(raw)),
        "channels": state["conv1.weight"].shape[1] if "conv1.weight" in state else 3,
    }
    return from_dict(Config, SIZES[KNOWN[name]] | values)


def export_config(config: Config) -> dict[str, Any]:
    """Convert a Config to a config.json."""
    fixed: dict[str, Any] = {
        "num_classes": config.num_classes,
        "image_size": config.image_size,
        "channels": config.channels,
        "dropout": config.dropout,
        "drop_path": config.drop_path,
    }
    name = next((name for name, size in KNOWN.items() if replace(Config(**SIZES[size]), **fixed) == config), None)
    if name is None:
        raise Unsupported(f"this ResNet is none of timm's {', '.join(KNOWN)}: {config}")
    width = config.width * 2 ** (len(config.layers) - 1) * BLOCKS[config.block].expansion
    return timm_config(name, config, width, {"in_chans": config.channels})


def load(folder: str | Path) -> tuple[ResNet, dict[str, Any]]:
    """Load a local folder; return the model in eval mode, and its labels and preprocessing."""
    return load_image_folder(folder, import_config, ResNet, table, timm_preprocessing)


def save(folder: str | Path, what: ResNet | Classifier) -> None:
    """Write a folder for timm, atomically; of a classifier, with labels and preprocessing."""
    save_for_timm(folder, what, ResNet, export_config, table)


def _pair(conv: str, norm: str, our_conv: str, our_norm: str) -> list[Row]:
    """Return the rows of a convolution and its norm."""
    return [
        Row(f"{conv}.weight", f"{our_conv}.weight", same),
        *(Row(f"{norm}.{part}", f"{our_norm}.{part}", same) for part in _NORM),
    ]
