"""LR-Net: a ResNet whose 3 x 3 convolutions are replaced by attention to the 7 x 7 cells around.

    tokens      none: a grid of channels, halved as in a ResNet
    positions   a geometry prior in every layer: scores of the offset between two cells
    attention   local relation (blocks.local_relation): softmax over 7 x 7 cells, shared by groups of 8 channels
    head        linear, on the mean of the last grid

    ResNet       relu(x + N C₁ relu(N C₃ relu(N C₁ x)))         3 x 3 convolution of 64, 128, 256, 512 channels
    LR-Net       relu(x + N C₁ relu(N L₇ relu(N C₁ x)))         local relation of 100, 200, 400, 800 channels

Stem, strides and outputs of the stages are those of a ResNet, so that LR-Net-50 (23.3 million parameters, 4.3 billion
multiply-adds) can be compared with ResNet-50 (25.5 million, 4.3 billion by the paper's count). The stem is a 1 x 1
convolution and a local relation layer too. The stem for images of 32 pixels is our own.

Hu, Zhang, Xie, Lin: Local Relation Networks for Image Recognition. ICCV 2019. arXiv:1904.11491
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.downsampling import ObservedDownsampling
from regard.blocks.local_relation import LocalRelation
from regard.blocks.residual import drop_path_rates
from regard.blocks.resnet_blocks import ResNetBlock, Stage
from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import ConvolutionalModel
from regard.tokens.patches import check_images


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an LR-Net; the defaults are LR-Net-50."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    layers: tuple[int, ...] = (3, 4, 6, 3)  # blocks of each stage
    width: int = 100  # of the local relations of the first stage, doubled in each next
    out_width: int = 256  # of the blocks' outputs in the first stage, doubled in each next
    stem_width: int = 64
    kernel: int = field(7, low=1)  # odd
    shared_channels: int = field(8, low=1)  # adjacent channels with the same weights: the paper's m
    stem: Literal["large", "small"] = "large"  # stride 2 and max-pooling, or neither
    dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.0, low=0, below=1)


_SMALL: dict[str, Any] = {"stem": "small", "image_size": 32, "num_classes": 10}

# 50 is the paper's table 1; 26 has two blocks a stage. It and the others are our own; tiny is
# for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        **_SMALL, "layers": (1, 1, 1, 1), "width": 12, "out_width": 16, "stem_width": 8, "kernel": 3
    },
    "26": {"layers": (2, 2, 2, 2)},
    "50": {},
    "26-cifar": {**_SMALL, "layers": (2, 2, 2, 2)},
    "26-cifar-narrow": {**_SMALL, "layers": (2, 2, 2, 2), "width": 48, "out_width": 120, "stem_width": 32},
}  # fmt: skip


class LRNet(ConvolutionalModel):
    """Images to logits of classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.stem = Stem(config)
        drop = iter(drop_path_rates(config.drop_path, sum(config.layers)))
        stages, in_channels = [], config.stem_width
        for depth, count in enumerate(config.layers):
            wide, out, blocks = config.width * 2**depth, config.out_width * 2**depth, []
            for n in range(count):
                stride = 2 if depth and not n else 1
                blocks.append(LocalRelationBlock(in_channels, wide, out, stride, config, next(drop)))
                in_channels = out
            stages.append(Stage(blocks))
        self.stages = nn.ModuleList(stages)
        self.width = in_channels
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.width, config.num_classes) if config.num_classes else None
        self.reset()

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the output of each stage, B C Y X, at strides 4, 8, 16 and 32; with the small stem 1, 2, 4 and 8."""
        check_images(images, self.config.channels)
        x, found = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise convolutions after He et al. 2015; queries and keys are small, so that attention starts even."""
        super().reset()
        for module in self.modules():
            if isinstance(module, LocalRelation):
                for conv in (module.query, module.key):
                    nn.init.normal_(conv.weight, std=0.02)
                    nn.init.zeros_(conv.bias)  # type: ignore[arg-type]
            elif isinstance(module, LocalRelationBlock):
                nn.init.zeros_(module.last_norm.weight)


class Stem(nn.Module):
    """A 1 x 1 convolution and a local relation layer; the large stem ends with a max-pooling."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        large, width = config.stem == "large", config.stem_width
        self.conv, self.norm1 = nn.Conv2d(config.channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.relate = LocalRelation(width, config.kernel, 2 if large else 1, config.shared_channels)
        self.norm2 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else None
        self.moved = ObservedDownsampling(2) if large else None

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        x = F.relu(self.norm1(self.conv(images)), inplace=True)
        x = F.relu(self.norm2(self.relate(x)), inplace=True)
        return x if self.pool is None or self.moved is None else self.moved(x, self.pool(x))


class LocalRelationBlock(ResNetBlock):
    """A bottleneck with a local relation layer in place of the 3 x 3 convolution."""

    def __init__(self, in_channels: int, width: int, out: int, stride: int, config: Config, drop_path: float) -> None:
        super().__init__(in_channels, out, stride, _conv, nn.BatchNorm2d, drop_path)
        self.conv1, self.norm1 = _conv(in_channels, width, 1, 1), nn.BatchNorm2d(width)
        self.relate = LocalRelation(width, config.kernel, stride, config.shared_channels)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3, self.norm3 = _conv(width, out, 1, 1), nn.BatchNorm2d(out)

    def branch(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.relu(self.norm2(self.relate(x)), inplace=True)
        out: Tensor = self.norm3(self.conv3(x))
        return out

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.norm3


def _conv(inward: int, out: int, kernel: int, stride: int) -> nn.Module:
    return nn.Conv2d(inward, out, kernel, stride, kernel // 2, bias=False)
