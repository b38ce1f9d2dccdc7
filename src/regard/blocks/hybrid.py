"""Hybrid stem: a ResNet whose grid is the input of a Vision Transformer.

    stem        7 x 7 with stride 2, a pool with stride 2, then stages of bottlenecks, each on half the grid of the last
    tokens      patches of that grid, mostly of 1 x 1, through one linear map

It is the ResNet of Big Transfer: group norm instead of batch norm, and convolutions with standardised weights,
w ← (w - mean) / deviation for each output channel. Images are zero-padded so that every stride divides their rows and
columns, more below and at the right ("same").

Dosovitskiy et al.: An Image is Worth 16x16 Words. ICLR 2021. arXiv:2010.11929; Steiner et al.: How to train your ViT?
2021. arXiv:2106.10270; Kolesnikov et al.: Big Transfer. ECCV 2020. arXiv:1912.11370; Qiao, Wang, Liu, Shen, Yuille:
Weight Standardization. 2019. arXiv:1903.10520
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.resnet_blocks import Bottleneck, make_stages
from regard.core.shapes import Float, Size, Tensor, pair
from regard.core.trace import Slots
from regard.tokens.patches import check_images, pad_to_stride, pixel_slots

GROUPS = 32


class HybridStem(nn.Module):
    """Map images to a grid of tokens B Y X C; `layers` counts the bottlenecks of each stage, `base` is their width."""

    exact_geometry = False  # the receptive field of a token is larger than its cell

    def __init__(
        self, channels: int, width: int, patch: Size = 1, layers: Sequence[int] = (3, 4, 9), base: int = 64
    ) -> None:
        super().__init__()
        self.channels, self.patch = channels, pair(patch)
        self.stride = (stem_stride(layers) * self.patch[0], stem_stride(layers) * self.patch[1])
        self.conv, self.norm = _conv(channels, base, 7, 2), _norm(base)
        self.stages = make_stages("bottleneck", base, layers, base, _conv, _norm, [0.0] * sum(layers))
        wide = base * 2 ** (len(layers) - 1) * Bottleneck.expansion if layers else base
        self.embed = nn.Conv2d(wide, width, self.patch, self.patch)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """Return one token for every `stride` pixels."""
        return self.tokens(self.stage_maps(images)[-1])

    def stage_maps(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the maps B C Y X of the pool and of each stage, at strides of 4, 4, 8, 16 ... pixels."""
        check_images(images, self.channels)
        x = images.contiguous(memory_format=torch.channels_last)
        x = F.relu(self.norm(self.conv(x)))
        found = [F.max_pool2d(pad_same(x, 3, 2), 3, 2)]  # after a ReLU, zero padding is the minimum
        for stage in self.stages:
            found.append(stage(found[-1]))
        return found

    def tokens(self, stage_map: Float[Tensor, "B E Z W"]) -> Float[Tensor, "B y x D"]:
        """Return the tokens of the last stage's map."""
        tokens: Tensor = self.embed(pad_to_stride(stage_map, self.patch))
        return tokens.permute(0, 2, 3, 1)

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """Return the pixels of each token's cell; its receptive field is larger."""
        return pixel_slots(images, self.stride)


def stem_stride(layers: Sequence[int]) -> int:
    """Return the stride of the last stage in pixels: 4 in the first, doubled in each next."""
    return int(4 * 2 ** max(0, len(layers) - 1))


class StdConv2d(nn.Conv2d):
    """A convolution with standardised weights and "same" padding."""

    eps = 1e-8

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        variance, mean = torch.var_mean(self.weight, (1, 2, 3), correction=0, keepdim=True)
        weight = (self.weight - mean) * torch.rsqrt(variance + self.eps)
        return F.conv2d(pad_same(x, self.kernel_size[0], self.stride[0]), weight, self.bias, self.stride)


def pad_same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Pad an image with zeros so that a kernel fits once for every stride; an odd zero goes below or to the right."""
    missing = [max(0, (-(-n // stride) - 1) * stride + kernel - n) for n in x.shape[:1:-1]]  # columns, rows
    sides = [side for n in missing for side in (n // 2, n - n // 2)]
    return F.pad(x, sides) if any(sides) else x


def _conv(in_channels: int, out: int, kernel: int, stride: int) -> nn.Module:
    conv = StdConv2d(in_channels, out, kernel, stride, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _norm(width: int) -> nn.Module:
    return nn.GroupNorm(GROUPS, width)
