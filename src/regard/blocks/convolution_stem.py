"""Convolution stem: a few 3 x 3 convolutions in place of large patches.

    x ← relu(group norm(conv 3 x 3 x)), some of them with stride 2; then patches of that grid, mostly of 1 x 1

A Vision Transformer trains faster and with less data when its patches see their neighbours first. The paper's stem has
batch norm; with group norm an image does not depend on the others of its batch, in training as later. The groups are
few, so that they keep how strong one channel is beside the others: what colour an object has.

Xiao, Singh, Mintun, Darrell, Dollár, Girshick: Early Convolutions Help Transformers See Better. NeurIPS 2021.
arXiv:2106.14881; Wu, He: Group Normalization. ECCV 2018. arXiv:1803.08494
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Size, Tensor, pair
from regard.core.trace import Slots
from regard.tokens.patches import check_images, pad_to_stride, pixel_slots

GROUPS = 4


class ConvolutionStem(nn.Module):
    """Map images to a grid of tokens B Y X C; `widths` and `strides` are those of the convolutions."""

    exact_geometry = False  # the receptive field of a token is larger than its cell

    def __init__(
        self,
        channels: int,
        width: int,
        patch: Size = 1,
        widths: Sequence[int] = (32, 64, 64, 128, 128),
        strides: Sequence[int] = (2, 2, 1, 2, 1),
    ) -> None:
        super().__init__()
        if len(widths) != len(strides) or not widths or any(each % GROUPS for each in widths):
            raise BadInput(
                f"widths and strides need one number for each convolution, widths in multiples of {GROUPS}; got "
                f"widths={tuple(widths)}, strides={tuple(strides)}"
            )
        self.channels, (down, right) = channels, pair(patch)
        self.stride = (down * prod(strides), right * prod(strides))
        before = (channels, *widths)
        layers = [_layer(*sizes) for sizes in zip(before, widths, strides, strict=False)]
        self.layers = nn.Sequential(*layers)
        self.embed = nn.Conv2d(widths[-1], width, (down, right), (down, right))

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """Return one token for every `stride` pixels."""
        check_images(images, self.channels)
        x = pad_to_stride(images, self.stride).contiguous(memory_format=torch.channels_last)
        tokens: Tensor = self.embed(self.layers(x))
        return tokens.permute(0, 2, 3, 1)

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """Return the pixels of each token's cell; its receptive field is larger."""
        return pixel_slots(images, self.stride)


def _layer(channels: int, width: int, stride: int) -> nn.Module:
    conv = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.GroupNorm(GROUPS, width), nn.ReLU())
