"""Learn to Pay Attention: a convolutional network that classifies what it attends to at three depths.

    global pooling     z = mean_n l_n                                               l: local features of the last grid
    attention          z = [z¹ z² z³],   z^s = Σ_n softmax_n(c(l^s_n, g)) l^s_n     of three grids; g: global features

    dot                c(l, g) = l·g
    parametrised       c(l, g) = u·(l + g),  u learned

    tokens      none: the grids of a VGG before its last three poolings, at strides 1, 2 and 4
    positions   none: convolutions are local
    attention   one query an image, made of the last features: every grid is pooled by what the whole image is about
    head        linear, on the three pooled vectors; the global features reach it only through the weights

Where a grid has another width than g, a linear map adapts g to it. The parametrised score is the paper's better one.
But u·(l + g) = u·l + u·g, and softmax over the cells cancels u·g: its maps do not depend on the global features
(tests/models/test_learn_to_pay_attention.py), nor does any gradient reach them, so that with it the layers after the
third grid are not built. The dot product has maps that do.

Jetley, Lord, Lee, Torr: Learn to Pay Attention. ICLR 2018. arXiv:1804.02391; the network: Simonyan, Zisserman: Very
Deep Convolutional Networks. ICLR 2015. arXiv:1409.1556
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.blocks.downsampling import ObservedDownsampling
from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models.contract import ConvolutionalModel
from regard.tokens.patches import check_images


@dataclass(frozen=True)
class Config:
    """Hyperparameters of the paper's VGG with attention."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vectors
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    width: int = 64  # of the first convolutions; later ones have 2, 4 and 8 times as many channels
    layers: tuple[int, int, int, int, int] = (2, 2, 3, 3, 3)  # convolutions of each width; the last two have 8 times
    score: Literal["dot", "parametrised"] = "dot"  # of a local with the global features
    dropout: float = field(0.0, low=0, below=1)


_CIFAR: dict[str, Any] = {"num_classes": 10, "image_size": 32}

# vgg is the paper's; narrow has about the cost of ResNet 18-cifar-narrow. Tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {**_CIFAR, "width": 4, "layers": (1, 1, 1, 1, 1)},
    "vgg": {**_CIFAR},
    "vgg-parametrised": {**_CIFAR, "score": "parametrised"},
    "narrow": {**_CIFAR, "width": 14},
}


class LearnToPayAttention(ConvolutionalModel):
    """Images to logits of classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        one, two, *wide = config.layers
        widths = [config.width * each for each in (1, 2, 4, 8, 8)]
        first = [*[widths[0]] * one, *[widths[1]] * two, *[widths[2]] * wide[0]]
        self.stages = nn.ModuleList(
            [
                convolutions(config.channels, first),
                convolutions(widths[2], [widths[3]] * wide[1]),
                convolutions(widths[3], [widths[4]] * wide[2]),
            ]
        )
        self.local_widths = widths[2:]
        dot = config.score == "dot"
        self.tail = GlobalFeatures(widths[4]) if dot else None
        self.pools = nn.ModuleList(
            GlobalQueryPooling(width, widths[4], 2 if n else 1) if dot else LearnedQueryPooling(width, 2 if n else 1)
            for n, width in enumerate(self.local_widths)
        )
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(self.num_features, config.num_classes) if config.num_classes else None
        self.reset()

    @property
    def num_features(self) -> int:
        return sum(self.local_widths)

    def forward_features(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E Z W"]:
        """Return the three grids at the stride of the last, the finer ones max-pooled, concatenated: Y/4 x X/4."""
        first, second, third = self.features(images)
        return torch.cat([halve(halve(first)), halve(second), third], 1)

    def pooled(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B E"]:
        """Return the three grids pooled by attention, concatenated."""
        grids = self.features(images)
        query = None if self.tail is None else self.tail(grids[-1])
        before = [images, *grids]
        pooled = [pool(x, below, query) for pool, x, below in zip(self.pools, grids, before, strict=False)]
        return torch.cat(pooled, 1)

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """Return the grids that are attended to, B C Y X, at strides 1, 2 and 4."""
        check_images(images, self.config.channels)
        found: list[Tensor] = []  # list[Tensor]() breaks the graph of torch.compile
        x = images.contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            x = stage(halve(x) if found else x)
            found.append(x)
        return found


class GlobalFeatures(nn.Module):
    """Two convolutions, each with a pooling, the mean of what is left, and a linear layer: one vector an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convolutions(width, [width]) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C"]:
        x = halve(x)
        for conv in self.convs:
            x = halve(conv(x))
        out: Tensor = self.out(x.mean((2, 3)))
        return out


class AttentionPooling(nn.Module):
    """The mean of the cells of a grid, weighted by softmax of their scores with one query."""

    kind = "cross"

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.moved = ObservedDownsampling(stride)
        self.attend = SoftmaxAttention(scale=1.0, backend="bmm")

    def attended(
        self, x: Float[Tensor, "B C Y X"], before: Tensor, query: Float[Tensor, "B C"]
    ) -> Float[Tensor, "B C"]:
        """Return the weighted mean; `before` is the grid of the pooling before, or the image."""
        cells = self.moved(before, x).flatten(2).mT[:, None]  # B 1 N C
        out: Tensor = self.attend(query[:, None, None], cells, cells)
        return out[:, 0, 0]


class GlobalQueryPooling(AttentionPooling):
    """Scores l·g: the query is made of the image."""

    def __init__(self, width: int, global_width: int, stride: int) -> None:
        super().__init__(stride)
        self.adapt = nn.Linear(global_width, width) if global_width != width else nn.Identity()

    def forward(self, x: Float[Tensor, "B C Y X"], before: Tensor, query: Float[Tensor, "B E"]) -> Float[Tensor, "B C"]:
        return self.attended(x, before, self.adapt(query))


class LearnedQueryPooling(AttentionPooling):
    """Scores u·(l + g), of which softmax leaves u·l: the query is learned."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__(stride)
        self.query = nn.Linear(width, 1, bias=False)

    def forward(self, x: Float[Tensor, "B C Y X"], before: Tensor, query: None = None) -> Float[Tensor, "B C"]:
        return self.attended(x, before, self.query.weight.to(x.dtype).expand(len(x), -1))


def convolutions(inward: int, widths: Sequence[int]) -> nn.Sequential:
    """Return 3 x 3 convolutions, each with a batch norm and a ReLU."""
    layers = list[nn.Module]()
    for out in widths:
        layers += [nn.Conv2d(inward, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
        inward = out
    return nn.Sequential(*layers)


def halve(x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C Z W"]:
    """Max-pool squares of four cells; at an edge fewer."""
    return F.max_pool2d(x, 2, ceil_mode=True)
