"""Residual blocks of convolutions, and stages of them: what images were read with before they were cut into patches.

    basic        relu(x + N C₃ relu(N C₃ x))                        two convolutions of 3 x 3
    bottleneck   relu(x + N C₁ relu(N C₃ relu(N C₁ x)))             narrow, look around, four times as wide again

C is a convolution, N a norm; both are given, so that the same blocks stand in a ResNet (batch norm) and in the stem of
a hybrid ViT (weights standardised, group norm). Where a stage begins the grid is halved in the convolution of 3 x 3
("version 1.5"), and a convolution of 1 x 1 takes x along. Inside, pictures are B C Y X.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition. CVPR 2016. arXiv:1512.03385
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch.nn.functional as F
from torch import nn

from regard.blocks.drop_path import DropPath
from regard.core.shapes import Float, Tensor

ConvFactory = Callable[[int, int, int, int], nn.Module]  # channels in and out, kernel, stride
NormFactory = Callable[[int], nn.Module]  # channels


class ResNetBlock(nn.Module):
    """What both kinds share: the way around, and the sum."""

    expansion: ClassVar[int]

    def __init__(
        self, in_channels: int, out: int, stride: int, conv: ConvFactory, norm: NormFactory, drop_path: float
    ) -> None:
        super().__init__()
        way = (
            OrderedDict(conv=conv(in_channels, out, 1, stride), norm=norm(out))
            if stride > 1 or in_channels != out
            else None
        )
        self.down = None if way is None else nn.Sequential(way)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        """One block; the first of a stage may halve the grid."""
        around = x if self.down is None else self.down(x)
        return F.relu(self.drop_path(self.branch(x)) + around, inplace=True)

    def branch(self, x: Tensor) -> Tensor:
        """What is added."""
        raise NotImplementedError

    @property
    def last_norm(self) -> nn.Module:
        """The norm at the end of the branch."""
        raise NotImplementedError


class BasicBlock(ResNetBlock):
    """Two convolutions of 3 x 3."""

    expansion = 1

    def __init__(
        self, in_channels: int, width: int, stride: int, conv: ConvFactory, norm: NormFactory, drop_path: float
    ) -> None:
        super().__init__(in_channels, width, stride, conv, norm, drop_path)
        self.conv1, self.norm1 = conv(in_channels, width, 3, stride), norm(width)
        self.conv2, self.norm2 = conv(width, width, 3, 1), norm(width)

    def branch(self, x: Tensor) -> Tensor:
        """Look around twice."""
        out: Tensor = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return out

    @property
    def last_norm(self) -> nn.Module:
        """The norm at the end of the branch."""
        return self.norm2


class Bottleneck(ResNetBlock):
    """A convolution of 3 x 3 where the channels are few."""

    expansion = 4

    def __init__(
        self, in_channels: int, width: int, stride: int, conv: ConvFactory, norm: NormFactory, drop_path: float
    ) -> None:
        out = self.expansion * width
        super().__init__(in_channels, out, stride, conv, norm, drop_path)
        self.conv1, self.norm1 = conv(in_channels, width, 1, 1), norm(width)
        self.conv2, self.norm2 = conv(width, width, 3, stride), norm(width)
        self.conv3, self.norm3 = conv(width, out, 1, 1), norm(out)

    def branch(self, x: Tensor) -> Tensor:
        """Narrow, look around, widen."""
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.relu(self.norm2(self.conv2(x)), inplace=True)
        out: Tensor = self.norm3(self.conv3(x))
        return out

    @property
    def last_norm(self) -> nn.Module:
        """The norm at the end of the branch."""
        return self.norm3


BLOCKS: dict[str, type[BasicBlock | Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class Stage(nn.Module):
    """Blocks on one grid; the first comes from the grid before."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        """One after the other."""
        for block in self.blocks:
            x = block(x)
        return x


def make_stages(
    kind: str,
    width: int,
    layers: Sequence[int],
    in_channels: int,
    conv: ConvFactory,
    norm: NormFactory,
    drop: Sequence[float],
) -> nn.ModuleList:
    """Stages of so many blocks, each twice as wide as the one before and, but for the first, on half its grid."""
    block, made, rates = BLOCKS[kind], [], iter(drop)
    for depth, count in enumerate(layers):
        wide, blocks = width * 2**depth, []
        for n in range(count):
            stride = 2 if depth and not n else 1
            blocks.append(block(in_channels, wide, stride, conv, norm, next(rates)))
            in_channels = wide * block.expansion
        made.append(Stage(blocks))
    return nn.ModuleList(made)
