"""ResNet: residual convolutional blocks; the baseline of Vision Transformers.

    tokens      none: a grid of channels, halved three times (and twice by the large stem)
    positions   none: convolutions are local
    attention   none; with `squeeze_excitation`, each block weights its channels by their means over the grid; with
                `non_local`, every cell attends to all cells after some stages (blocks.non_local)
    head        linear, on the mean of the last grid

Norms are batch norms. Two stems: a 7 x 7 convolution with stride 2 and max-pooling for images of 224, and a 3 x 3
convolution for images of 32. The last norm of every block is initialised with 0, so that blocks start as the identity
(Goyal et al. 2017). As the backbone of a detector its norms may be frozen, and its last stage dilated.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition. CVPR 2016. arXiv:1512.03385; Goyal et al.: Accurate,
Large Minibatch SGD. 2017. arXiv:1706.02677; Hu, Shen, Sun: Squeeze-and-Excitation Networks. CVPR 2018.
arXiv:1709.01507; Wang, Girshick, Gupta, He: Non-local Neural Networks. CVPR 2018. arXiv:1711.07971
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.observed_weights import ObservedWeights
from regard.blocks.non_local import NonLocalBlock
from regard.blocks.norms import FrozenBatchNorm2d
from regard.blocks.residual import drop_path_rates
from regard.blocks.resnet_blocks import BLOCKS, NormFactory, ResNetBlock, make_stages
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import ConvolutionalModel
from regard.tokens.patches import check_images


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a ResNet; the defaults are ResNet-18."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    block: Literal["basic", "bottleneck"] = "basic"
    layers: tuple[int, ...] = (2, 2, 2, 2)  # blocks of each stage
    width: int = 64  # of the first stage, doubled in each next; a bottleneck's output is 4 times as wide
    stem: Literal["large", "small"] = "large"  # 7 x 7 with stride 2 and max-pooling, or 3 x 3
    norm: Literal["batch", "frozen"] = "batch"  # frozen: statistics and factors are those of loaded weights
    dilated: bool = False  # the last stage of bottlenecks has dilation 2 in place of stride 2 (DC5)
    squeeze_excitation: bool = False  # weight the channels of every block
    non_local: tuple[int, ...] = field((), low=0)  # stages, from 0, after which every cell attends to all cells
    dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.0, low=0, below=1)


_SMALL: dict[str, Any] = {"stem": "small", "image_size": 32, "num_classes": 10}

# The paper's table 1. `cifar` ones have the stem for small images; 18-cifar-narrow has as many weights as a small ViT.
# Tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {**_SMALL, "width": 8, "layers": (1, 1, 1, 1)},
    "18": {},
    "34": {"layers": (3, 4, 6, 3)},
    "50": {"layers": (3, 4, 6, 3), "block": "bottleneck"},
    "101": {"layers": (3, 4, 23, 3), "block": "bottleneck"},
    "152": {"layers": (3, 8, 36, 3), "block": "bottleneck"},
    "se-18": {"squeeze_excitation": True},
    "se-34": {"layers": (3, 4, 6, 3), "squeeze_excitation": True},
    "se-50": {"layers": (3, 4, 6, 3), "block": "bottleneck", "squeeze_excitation": True},
    "se-101": {"layers": (3, 4, 23, 3), "block": "bottleneck", "squeeze_excitation": True},
    "se-152": {"layers": (3, 8, 36, 3), "block": "bottleneck", "squeeze_excitation": True},
    "18-cifar": {**_SMALL},
    "se-18-cifar": {**_SMALL, "squeeze_excitation": True},
    "non-local-18-cifar": {**_SMALL, "non_local": (1, 2)},
    "non-local-50": {"layers": (3, 4, 6, 3), "block": "bottleneck", "non_local": (1, 2)},
    "50-cifar": {**_SMALL, "layers": (3, 4, 6, 3), "block": "bottleneck"},
    "18-cifar-narrow": {**_SMALL, "width": 36},
}


class ResNet(ConvolutionalModel):
    """Images to logits of classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        norm = NORMS[config.norm]
        self.stem = Stem(config.channels, config.width, config.stem == "large", norm)
        drop = drop_path_rates(config.drop_path, sum(config.layers))
        gate = SqueezeExcitation if config.squeeze_excitation else None
        if config.dilated and config.block != "bottleneck":
            raise BadInput("dilated=True needs block='bottleneck', got block='basic'")
        sizes, dilated_conv = (config.block, config.width, config.layers, config.width), partial(_conv, dilation=2)
        self.stages = make_stages(*sizes, _conv, norm, drop, gate, dilated_conv if config.dilated else None)
        self.width = config.width * 2 ** (len(config.layers) - 1) * BLOCKS[config.block].expansion
        self.non_local = self._non_local_blocks()
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.width, config.num_classes) if config.num_classes else None
        self.reset()

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the output of each stage, B C Y X, at strides 4, 8, 16 and 32; with the small stem 1, 2, 4 and 8.

        A dilated last stage has the stride of the one before.
        """
        check_images(images, self.config.channels)
        x = self.stem(images.contiguous(memory_format=torch.channels_last))  # faster convolutions
        found, before = [], images
        for n, stage in enumerate(self.stages):
            x = stage(x)
            if str(n) in self.non_local:
                x = before = self.non_local[str(n)](x, before)
            found.append(x)
        return found

    def _non_local_blocks(self) -> nn.ModuleDict:
        config, blocks, last = self.config, {}, 1
        if wrong := [n for n in config.non_local if n >= len(config.layers)]:
            raise BadInput(
                f"non_local={config.non_local} names stage {wrong[0]}; stages are 0 to {len(config.layers) - 1}"
            )
        for n in sorted(config.non_local):
            stride = (4 if config.stem == "large" else 1) * 2 ** min(n, len(config.layers) - 1 - config.dilated)
            channels = config.width * 2**n * BLOCKS[config.block].expansion
            blocks[str(n)], last = NonLocalBlock(channels, stride // last), stride
        return nn.ModuleDict(blocks)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights after He et al. 2015; blocks start as the identity."""
        super().reset()
        for module in self.non_local.values():
            module.reset()  # type: ignore[operator]
        for module in self.modules():
            if isinstance(module, ResNetBlock) and self.config.norm == "batch":  # a frozen 0 would stay
                nn.init.zeros_(module.last_norm.weight)  # type: ignore[arg-type]


class Stem(nn.Module):
    """The layers before the stages."""

    def __init__(self, channels: int, width: int, large: bool, norm: NormFactory) -> None:
        super().__init__()
        self.conv = _conv(channels, width, 7 if large else 3, 2 if large else 1)
        self.norm = norm(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        out: Tensor = self.pool(F.relu(self.norm(self.conv(images)), inplace=True))
        return out


class SqueezeExcitation(nn.Module):
    """Weight each channel by a gate computed from the means of all channels over the grid.

    s = σ(W₂ relu(W₁ mean(x)))        x · s        W₁ to a sixteenth of the channels, a multiple of 8
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        reduced = max(8, (channels // 16 + 4) // 8 * 8)
        self.reduce = nn.Conv2d(channels, reduced, 1)
        self.expand = nn.Conv2d(reduced, channels, 1)
        self.observed = ObservedWeights()

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        gate = self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)), inplace=True)).sigmoid()
        out: Tensor = x * self.observed(gate)
        return out


NORMS: dict[str, NormFactory] = {"batch": nn.BatchNorm2d, "frozen": FrozenBatchNorm2d}


def _conv(inward: int, out: int, kernel: int, stride: int, dilation: int = 1) -> nn.Module:
    return nn.Conv2d(inward, out, kernel, stride, kernel // 2 * dilation, dilation, bias=False)
