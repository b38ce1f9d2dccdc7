"""U-Net: convolutions down to a coarse grid and up again, with skips; the baseline of dense Transformers.

    tokens      none: a grid of channels; each level has half the rows and columns and twice the channels of the last
    positions   none: convolutions are local
    attention   none
    head        a 1 x 1 convolution on the finest level

With `backbone` the way down is an EfficientNet-Lite, whose weights may be from ImageNet, and the logits of stride 4 are
resized to the image. On the way up, a transposed convolution doubles the grid, and the map of that level from the way
down is concatenated. What differs from the paper: convolutions are padded and followed by batch norm, so that the
output has the size of the image, and sides need not be even: the last row or column of a pool may be half empty, and is
cut off on the way up.

Ronneberger, Fischer, Brox: U-Net: Convolutional Networks for Biomedical Image Segmentation. MICCAI 2015.
arXiv:1505.04597
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import DenseModel
from regard.models.efficientnet_lite import Config as EfficientNetConfig
from regard.models.efficientnet_lite import grid_widths, headless
from regard.tokens.patches import check_images


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a U-Net; the defaults are the paper's."""

    num_outputs: int = 2  # classes, or 1 for inverse depth
    image_size: int | tuple[int, int] = 512  # size in training; any other works
    channels: int = 3
    width: int = 64  # of the finest level, doubled in each next
    scales: int = 5  # grids, the finest included
    dropout: float = field(0.0, low=0, below=1)  # of the coarsest level
    backbone: EfficientNetConfig | None = None  # the way down, from stride 4 to 32, instead of `width` and `scales`


# Base is the paper's figure 1. Tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"image_size": 32, "width": 4, "scales": 3},
    "small": {"width": 32},
    "base": {},
}


class UNet(DenseModel):
    """Images to numbers for every pixel."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.backbone, self.widths = None, [config.width * 2**level for level in range(config.scales)]
        if config.backbone is not None:
            self.backbone, self.widths = headless(config.backbone), grid_widths(config.backbone)
        widths = self.widths
        down = [] if config.backbone is not None else zip([config.channels, *widths], widths, strict=False)
        self.down = nn.ModuleList(Convolutions(above, here) for above, here in down)
        self.drop = nn.Dropout(config.dropout)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(below, here, 2, 2) for here, below in pairwise(widths))
        self.up = nn.ModuleList(Convolutions(2 * here, here) for here in widths[:-1])
        self.head = self._make_head()
        self.reset()

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B K Y X"]:
        """Return the logits of the classes, or the inverse depth, of every pixel."""
        out: Tensor = self.head(self.features(images)[0])
        if self.backbone is not None:
            out = F.interpolate(out, images.shape[2:], mode="bilinear", align_corners=False)
        return out

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the maps on the way up, B C Y X, at strides 1, 2, 4 ... pixels."""
        skips = self._down(images) if self.backbone is None else self.backbone.features(images)
        found = [self.drop(skips.pop())]
        for grow, up, skip in zip(reversed(self.grow), reversed(self.up), reversed(skips), strict=True):
            grown = grow(found[-1])[..., : skip.shape[2], : skip.shape[3]]
            found.append(up(torch.cat([skip, grown], 1)))
        return found[::-1]

    def _down(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        check_images(images, self.config.channels)
        x, found = images.contiguous(memory_format=torch.channels_last), []  # faster convolutions
        for level, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2, ceil_mode=True) if level else x)
            found.append(x)
        return found

    def _make_head(self) -> nn.Module:
        return nn.Conv2d(self.widths[0], self.config.num_outputs, 1)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the convolutions after He et al. 2015, as the paper does."""
        for module in [*self.down.modules(), *self.up.modules()]:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


class Convolutions(nn.Module):
    """Two 3 x 3 convolutions, each with batch norm and ReLU."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(channels, width), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = _conv(width, width), nn.BatchNorm2d(width)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D Y X"]:
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


def _conv(channels: int, width: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, padding=1, bias=False)
