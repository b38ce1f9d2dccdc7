"""ResNets of timm and of torchvision, which name their tensors alike.

timm's ``resnet18``, ``resnet34``, ``resnet50``, ``resnet101``, ``resnet152`` and torchvision's functions of these
names; not their variants (deep stems, pooled shortcuts, groups).
"""

from __future__ import annotations

from regard.models.resnet import Config
from regard.weights.table import Row, same

_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def table(config: Config) -> list[Row]:
    """Their ResNet and ours."""
    rows = [*_pair("conv1", "bn1", "stem.conv", "stem.norm")]
    convolutions = 2 if config.block == "basic" else 3
    for stage in range(len(config.layers)):
        theirs, ours = f"layer{stage + 1}.{{b}}", f"stages.{stage}.blocks.{{b}}"
        for n in range(1, convolutions + 1):
            rows += _pair(f"{theirs}.conv{n}", f"{theirs}.bn{n}", f"{ours}.conv{n}", f"{ours}.norm{n}")
        rows += _pair(f"{theirs}.downsample.0", f"{theirs}.downsample.1", f"{ours}.down.conv", f"{ours}.down.norm")
    if config.classes:
        rows += [Row(f"fc.{part}", f"head.{part}", same) for part in ("weight", "bias")]
    return rows


def _pair(conv: str, norm: str, our_conv: str, our_norm: str) -> list[Row]:
    """A convolution and its norm."""
    return [
        Row(f"{conv}.weight", f"{our_conv}.weight", same),
        *(Row(f"{norm}.{part}", f"{our_norm}.{part}", same) for part in _NORM),
    ]
