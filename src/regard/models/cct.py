"""Compact convolutional transformer: a Vision Transformer that learns from tens of thousands of images.

    tokens      convolutions with ReLU and max-pooling instead of patches: neighbours overlap
    positions   a learned table over the grid, added to the tokens; resampled for images of another size
    attention   softmax, every token sees every token
    head        linear, on the tokens weighted by a learned score of each (sequence pooling): no class token

    sequence pooling    z = Σ_n softmax_n(w·x_n + b) x_n

Blocks as in the authors' code: the norm before the feed-forward is on the residual path itself.

    x = x + attend(norm(x));    x = norm(x);    x = x + feed(x)

Hassani, Walton, Shah, Abuduweili, Li, Shi: Escaping the Big Data Paradigm with Compact Transformers. 2021.
arXiv:2104.05704
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import Mask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS
from regard.blocks.encoder import Encoder
from regard.blocks.feature_pyramid import pyramid_layers, resample_to_strides
from regard.blocks.residual import DropPath, drop_path_rates
from regard.core.config import field
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.trace import Slots
from regard.core.validation import validate
from regard.models.contract import ImageModel
from regard.positions.added.grid import GridPositions
from regard.positions.none import NoPositions
from regard.tokens.patches import check_images, grid_size, pixel_slots


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a CCT; the defaults are CCT-14/7x2, for ImageNet."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    kernel: int = 7  # of the convolutions
    convolutions: int = 2  # each followed by a pool that halves the grid; a kernel of 7 halves it once more
    width: int = 384
    heads: int = 6
    layers: int = 14
    mlp_ratio: float = field(3.0, above=0)  # hidden width of the feed-forward / width
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    drop_path: float = field(0.1, low=0, below=1)
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module


_MEDIUM: dict[str, Any] = {"width": 256, "heads": 4, "mlp_ratio": 2.0}
_SMALL: dict[str, Any] = {"width": 128, "heads": 2, "mlp_ratio": 1.0}
_CIFAR: dict[str, Any] = {"image_size": 32, "num_classes": 10, "kernel": 3}

# The paper's: layers - kernel x convolutions; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {**_SMALL, **_CIFAR, "width": 48, "layers": 2, "convolutions": 2},
    "2-3x2": {**_SMALL, **_CIFAR, "layers": 2, "convolutions": 2},
    "4-3x2": {**_SMALL, **_CIFAR, "layers": 4, "convolutions": 2},
    "6-3x1": {**_MEDIUM, **_CIFAR, "layers": 6, "convolutions": 1},
    "7-3x1": {**_MEDIUM, **_CIFAR, "layers": 7, "convolutions": 1},
    "7-3x2": {**_MEDIUM, **_CIFAR, "layers": 7, "convolutions": 2},
    "7-7x2": {**_MEDIUM, "layers": 7},
    "14-7x2": {},
}


class CCT(ImageModel):
    """Images to logits of classes."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.stem = ConvTokenizer(config.channels, config.width, config.kernel, config.convolutions)
        grid = grid_size(config.image_size, self.stem.stride)
        self.positions = GridPositions(config.width, grid)
        drop = drop_path_rates(config.drop_path, config.layers)
        blocks = [CompactBlock(config, layer, drop[layer], grid) for layer in range(config.layers)]
        self.encoder = Encoder(blocks, NoPositions(), nn.LayerNorm(config.width), config.dropout)
        self.pool = SequencePool(config.width)
        self.head = nn.Linear(config.width, config.num_classes) if config.num_classes else None
        self.reset()

    def forward(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B K"]:
        """Return the logits of the classes, or the pooled vector if there are none."""
        tokens = self.stem(images)
        hidden = self.encoder(self.sequence(tokens), None, pass_state)
        pooled = self.pool(hidden)
        return pooled if self.head is None else self.head(pooled)

    @property
    def num_features(self) -> int:
        return self.config.width

    def forward_features(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B N E"]:
        return self.encoder(self.sequence(self.stem(images)), None, pass_state)

    def pooled(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B E"]:
        """Return the tokens pooled by their scores."""
        out: Tensor = self.pool(self.encoder(self.sequence(self.stem(images)), None, pass_state))
        return out

    def grid(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B Z W E"]:
        """Return the normed tokens of the last layer on their grid."""
        tokens = self.stem(images)
        return self.encoder(self.sequence(tokens), None, pass_state).unflatten(1, tokens.shape[1:3])

    def features(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> list[Tensor]:
        """Return normed tokens of four depths, B C Y X, resampled without parameters to strides 4, 8, 16 and 32."""
        tokens = self.stem(images)
        depths = pyramid_layers(self.config.layers)
        found = self.encoder.intermediate_layers(self.sequence(tokens), depths, None, pass_state)
        grids = [self.encoder.final_norm(x).unflatten(1, tokens.shape[1:3]) for x in found]
        return resample_to_strides(grids, (images.shape[2], images.shape[3]))

    def sequence(self, tokens: Float[Tensor, "B Z W E"]) -> Float[Tensor, "B N E"]:
        """Flatten the grid row by row and add positions."""
        placed: Tensor = self.positions(tokens.flatten(1, 2), (tokens.shape[1], tokens.shape[2]))
        return placed

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise as the authors: normal with std 0.02, positions 0.2, convolutions after He et al. 2015."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.positions.table, std=0.2)


class ConvTokenizer(nn.Module):
    """Images to overlapping tokens: convolutions, each with a ReLU and 3 x 3 max-pooling that halves the grid."""

    exact_geometry = False  # neighbours overlap
    hidden_channels = 64  # channels of all convolutions but the last

    def __init__(self, channels: int, width: int, kernel: int, convolutions: int) -> None:
        super().__init__()
        self.channels = channels
        wide = [channels, *[self.hidden_channels] * (convolutions - 1), width]
        stride, around = max(1, kernel // 2 - 1), max(1, kernel // 2)
        self.stride = ((2 * stride) ** convolutions,) * 2
        self.convs = nn.ModuleList(
            nn.Conv2d(inward, out, kernel, stride, around, bias=False) for inward, out in pairwise(wide)
        )
        self.pool = nn.MaxPool2d(3, 2, 1)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B Z W E"]:
        check_images(images, self.channels)
        x = images.contiguous(memory_format=torch.channels_last)  # the permuted output is then contiguous
        for conv in self.convs:
            x = self.pool(F.relu(conv(x)))
        return x.movedim(1, -1)

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """Return the pixels under each token's stride; its receptive field is larger."""
        return pixel_slots(images, self.stride)


class CompactBlock(nn.Module):
    """Attention, then feed-forward; the second norm is on the residual path."""

    def __init__(self, config: Config, layer: int, drop_path: float, grid: tuple[int, int]) -> None:
        super().__init__()
        width, hidden = config.width, int(config.mlp_ratio * config.width)
        self.mix_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = build_mixer(
            layer_spec(config.attention, layer),
            layer=layer,
            width=width,
            heads=config.heads,
            length=grid[0] * grid[1],
            grid=grid,
            bias=False,
            out_bias=True,
            dropout=config.attention_dropout,
        )
        self.feed = build_part(FEEDFORWARDS, "gelu", "feed-forward", width=width, hidden=hidden, dropout=config.dropout)
        self.drop, self.drop_path = nn.Dropout(config.dropout), DropPath(drop_path)

    def forward(
        self,
        x: Tensor,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        mixed = self.mix(self.mix_norm(x), mask=mask, positions=positions, layer_state=layer_state)
        x = self.feed_norm(x + self.drop_path(self.drop(mixed)))
        return x + self.drop_path(self.drop(self.feed(x)))


class SequencePool(nn.Module):
    """Sequence pooling: attention with one learned query."""

    kind = "cross"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.attend = SoftmaxAttention(scale=1.0, backend="bmm")

    def forward(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        """Return the mean of the tokens weighted by their scores, through a mechanism so that it can be watched."""
        scores = self.score(x)[:, None]  # B 1 N 1: keys of width 1
        out: Tensor = self.attend(torch.ones_like(scores[:, :, :1]), scores, x[:, None])
        return out[:, 0, 0]
