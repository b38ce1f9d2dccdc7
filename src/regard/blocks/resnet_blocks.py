"""Residual blocks of convolutions, and stages of them.

    basic        relu(x + N C₃ relu(N C₃ x))                        two convolutions of 3 x 3
    bottleneck   relu(x + N C₁ relu(N C₃ relu(N C₁ x)))             narrow, convolve 3 x 3, four times as wide again

C is a convolution, N a norm; both are passed in, since the same blocks are used in a ResNet (batch norm) and in the
stem of a hybrid ViT (standardised weights, group norm). The first block of a stage halves the grid in its 3 x 3
convolution ("version 1.5") and in a 1 x 1 convolution on the skip path. A gate may scale the channels of the branch
before the sum (squeeze-and-excitation). The last stage may keep the grid and dilate its convolutions instead (DC5).
Images are B C Y X.

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition. CVPR 2016. arXiv:1512.03385
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch.nn.functional as F
from torch import nn

from regard.blocks.residual import DropPath
from regard.core.shapes import Float, Tensor

ConvFactory = Callable[[int, int, int, int], nn.Module]  # channels in and out, kernel, stride
NormFactory = Callable[[int], nn.Module]  # channels
GateFactory = Callable[[int], nn.Module]  # channels


class ResNetBlock(nn.Module):
    """Base class of both kinds: the skip path, and the sum."""

    expansion: ClassVar[int]

    def __init__(
        self, in_channels: int, out: int, stride: int, conv: ConvFactory, norm: NormFactory, drop_path: float
    ) -> None:
        super().__init__()
        skip = (
            OrderedDict(conv=conv(in_channels, out, 1, stride), norm=norm(out))
            if stride > 1 or in_channels != out
            else None
        )
        self.down = None if skip is None else nn.Sequential(skip)
        self.drop_path = DropPath(drop_path)
        self.gate: nn.Module | None = None  # set by `make_stages`

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        skip = x if self.down is None else self.down(x)
        branch = self.branch(x)
        branch = branch if self.gate is None else self.gate(branch)
        return F.relu(self.drop_path(branch) + skip, inplace=True)

    def branch(self, x: Tensor) -> Tensor:
        """Return the residual branch."""
        raise NotImplementedError

    @property
    def last_norm(self) -> nn.Module:
        """The norm at the end of the branch."""
        raise NotImplementedError


class BasicBlock(ResNetBlock):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(
        self, in_channels: int, width: int, stride: int, conv: ConvFactory, norm: NormFactory, drop_path: float
    ) -> None:
        super().__init__(in_channels, width, stride, conv, norm, drop_path)
        self.conv1, self.norm1 = conv(in_channels, width, 3, stride), norm(width)
        self.conv2, self.norm2 = conv(width, width, 3, 1), norm(width)

    def branch(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return out

    @property
    def last_norm(self) -> nn.Module:
        return self.norm2


class Bottleneck(ResNetBlock):
    """A 3 x 3 convolution between two of 1 x 1, with a quarter of the channels."""

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
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.relu(self.norm2(self.conv2(x)), inplace=True)
        out: Tensor = self.norm3(self.conv3(x))
        return out

    @property
    def last_norm(self) -> nn.Module:
        return self.norm3


BLOCKS: dict[str, type[BasicBlock | Bottleneck]] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class Stage(nn.Module):
    """Blocks of one grid size; the first may halve the grid."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
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
    gate: GateFactory | None = None,
    dilated_conv: ConvFactory | None = None,
) -> nn.ModuleList:
    """Build stages of `layers` blocks, each twice as wide as the last and, except the first, on half its grid.

    With `dilated_conv` the last stage keeps the grid; all its blocks but the first have these convolutions.
    """
    block, made, rates = BLOCKS[kind], [], iter(drop)
    for depth, count in enumerate(layers):
        wide, blocks = width * 2**depth, []
        dilated = dilated_conv if depth == len(layers) - 1 else None
        for n in range(count):
            stride = 2 if depth and not n and dilated is None else 1
            blocks.append(block(in_channels, wide, stride, dilated if dilated and n else conv, norm, next(rates)))
            in_channels = wide * block.expansion
            blocks[-1].gate = None if gate is None else gate(in_channels)
        made.append(Stage(blocks))
    return nn.ModuleList(made)
