"""EfficientNet-Lite: inverted bottlenecks of depthwise convolutions; a small network with public ImageNet weights.

    tokens      none: a grid of channels, halved five times
    positions   none: convolutions are local
    attention   none: squeeze-and-excitation is left out, and ReLU6 replaces swish, for phones
    head        linear, on the mean of the last grid

A block widens by 1 x 1, convolves each channel by itself, narrows by 1 x 1, and adds its input where the shapes agree:

    x + N C₁ relu6(N D relu6(N C₁ x))        D: depthwise, 3 x 3 or 5 x 5

`EfficientNetStem` makes it the first part of a dense Transformer: grids of a network trained on ImageNet as tokens.

The five sizes multiply the widths and repeats of one table; stem, last layer, and the repeats of the first and last
stage stay. Padding is "same", with the odd zero below and at the right.

Tan, Le: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks. ICML 2019. arXiv:1905.11946;
Liu: Higher accuracy on vision models with EfficientNet-Lite. TensorFlow blog, 2020
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.hybrid import pad_same
from regard.blocks.residual import DropPath, drop_path_rates
from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.core.trace import Slots
from regard.core.validation import validate
from regard.models.contract import ConvolutionalModel
from regard.tokens.patches import check_images, pixel_slots

# Repeats, kernel, stride, expansion and width of each stage: table 1 of the paper.
STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320))  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an EfficientNet-Lite; the defaults are lite0."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    width_factor: float = field(1.0, above=0, high=16)
    depth_factor: float = field(1.0, above=0, high=16)
    stem_width: int = 32
    stem_stride: Literal[1, 2] = 2  # 1 for small images
    head_width: int = 1280
    dropout: float = field(0.2, low=0, below=1)
    drop_path: float = field(0.2, low=0, below=1)  # of the last block; 0 at the first, linear between


def _size(width: float, depth: float, image: int, dropout: float) -> dict[str, Any]:
    return {"width_factor": width, "depth_factor": depth, "image_size": image, "dropout": dropout}


# Factors, image sizes and dropout of the published models. Tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {**_size(0.25, 0.3, 32, 0.0), "num_classes": 10, "stem_width": 8, "stem_stride": 1, "head_width": 32},
    "lite0": {},
    "lite1": _size(1.0, 1.1, 240, 0.2),
    "lite2": _size(1.1, 1.2, 260, 0.3),
    "lite3": _size(1.2, 1.4, 280, 0.3),
    "lite4": _size(1.4, 1.8, 300, 0.3),
}


class EfficientNetLite(ConvolutionalModel):
    """Images to logits of classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.stem = SameConv2d(config.channels, config.stem_width, 3, config.stem_stride)
        self.stem_norm = _norm(config.stem_width)
        blocks = _make_blocks(config)
        self.blocks = nn.ModuleList(blocks)
        self.strides = [block.stride for block in blocks]
        self.conv, self.norm = SameConv2d(blocks[-1].width, config.head_width, 1), _norm(config.head_width)
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.head_width, config.num_classes) if config.num_classes else None
        self.reset()

    @property
    def num_features(self) -> int:
        return self.config.head_width

    def forward_features(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        return F.relu6(self.norm(self.conv(self.features(images)[-1])))

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the last map of each grid but the finest, B C Y X, at strides 4, 8, 16 and 32."""
        check_images(images, self.config.channels)
        x = F.relu6(self.stem_norm(self.stem(images.contiguous(memory_format=torch.channels_last))))
        found: list[Tensor] = []
        for block, stride in zip(self.blocks, self.strides, strict=True):
            if stride > 1:
                found.append(x)
            x = block(x)
        return [*found[1:], x]

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the convolutions by fan-out, depthwise ones by the kernel alone."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] ** 2 * module.out_channels // module.groups
                nn.init.normal_(module.weight, std=(2 / fan_out) ** 0.5)
        if self.head is not None:
            nn.init.trunc_normal_(self.head.weight, std=0.02)
            nn.init.zeros_(self.head.bias)


class EfficientNetStem(nn.Module):
    """Images to tokens B Y X C: the coarse grids of an EfficientNet-Lite, each through a linear map, as one sum.

    The sum has the grid of `level`: 0 for the finest of `features` (stride 4), 1 for the next. Coarser grids are
    resized to it bilinearly; finer ones are not in the sum, `stage_maps` returns them too.
    """

    exact_geometry = False  # the receptive field of a token is larger than its cell

    def __init__(self, config: Config, width: int, level: int) -> None:
        super().__init__()
        self.backbone, widths, self.level = headless(config), grid_widths(config), level
        self.skip_widths = widths[:level]
        self.stride = (grid_strides(config)[level],) * 2
        self.project = nn.ModuleList(nn.Conv2d(wide, width, 1) for wide in widths[level:])

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        return self.tokens(self.stage_maps(images)[-1])

    def stage_maps(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the grids finer than the tokens, finest first, and the sum, B D y x."""
        grids = self.backbone.features(images)
        total, *coarser = (part(x) for part, x in zip(self.project, grids[self.level :], strict=True))
        for x in coarser:
            total = total + F.interpolate(x, total.shape[2:], mode="bilinear", align_corners=False)
        return [*grids[: self.level], total]

    def tokens(self, stage_map: Float[Tensor, "B D y x"]) -> Float[Tensor, "B y x D"]:
        """Return the sum as tokens."""
        return stage_map.movedim(1, -1)

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """Return the pixels of each token's cell; its receptive field is larger."""
        return pixel_slots(images, self.stride)


def headless(config: Config) -> EfficientNetLite:
    """Return the network without a classifier, for its `features`; the last convolution, which they leave out, stays
    as it is."""
    model = EfficientNetLite(replace(config, num_classes=0))
    for part in (model.conv, model.norm):
        part.requires_grad_(False)
    return model


def grid_widths(config: Config) -> list[int]:
    """Return the channels of the four maps of `features`."""
    widths = [_round_width(wide * config.width_factor) for *_, wide in STAGES]
    ends = [n - 1 for n, (_, _, stride, *_) in enumerate(STAGES) if stride > 1]
    return [widths[n] for n in (*ends[1:], len(STAGES) - 1)]


def grid_strides(config: Config) -> list[int]:
    """Return the pixels per cell of the four maps of `features`."""
    return [config.stem_stride * 2**n for n in range(1, 5)]


class InvertedBottleneck(nn.Module):
    """Widen, convolve each channel by itself, narrow, and add the input where the shapes agree."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int, expansion: int, drop_path: float) -> None:
        super().__init__()
        wide = channels * expansion
        self.width, self.stride, self.is_residual = width, stride, stride == 1 and channels == width
        self.expand = SameConv2d(channels, wide, 1) if expansion > 1 else None
        self.expand_norm = _norm(wide) if expansion > 1 else None
        self.depthwise, self.depthwise_norm = SameConv2d(wide, wide, kernel, stride, groups=wide), _norm(wide)
        self.project, self.project_norm = SameConv2d(wide, width, 1), _norm(width)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D Z W"]:
        out = x
        if self.expand is not None and self.expand_norm is not None:
            out = F.relu6(self.expand_norm(self.expand(out)), inplace=True)
        out = F.relu6(self.depthwise_norm(self.depthwise(out)), inplace=True)
        out = self.project_norm(self.project(out))
        return x + self.drop_path(out) if self.is_residual else out


class SameConv2d(nn.Conv2d):
    """A convolution without bias and with "same" padding."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, width, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D Z W"]:
        return super().forward(pad_same(x, self.kernel_size[0], self.stride[0]))


def _make_blocks(config: Config) -> list[InvertedBottleneck]:
    """Return the blocks of all stages, widths and repeats multiplied."""
    shapes, channels = [], config.stem_width
    for n, (repeats, kernel, stride, expansion, wide) in enumerate(STAGES):
        width = _round_width(wide * config.width_factor)
        many = repeats if n in (0, len(STAGES) - 1) else ceil(repeats * config.depth_factor)
        for k in range(many):
            shapes.append((channels, width, kernel, 1 if k else stride, expansion))
            channels = width
    rates = drop_path_rates(config.drop_path, len(shapes))
    return [InvertedBottleneck(*shape, rate) for shape, rate in zip(shapes, rates, strict=True)]


def _round_width(width: float) -> int:
    """Return the nearest multiple of 8, at least 8, that is not more than a tenth smaller."""
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)
