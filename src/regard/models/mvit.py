"""MViT: a multiscale vision Transformer that pools queries, keys and values inside attention.

    tokens      overlapping patches, 7 x 7 pixels every 4; in clips 3 frames every 2; perhaps a class token first
    positions   v1: learned tables of space and of time, added; v2: decomposed relative positions in every layer
    attention   softmax over pooled keys; the first block of a stage pools its queries too, and halves the grid
    head        norm, then the class token or the mean of the last grid, then a linear layer

Four stages; each has half the rows and columns of the one before and twice its width and heads. An image has the shape
(Y, X), a clip (T, Y, X); for other sizes than in training, positions are interpolated.

Fan, Xiong, Mangalam, Li, Yan, Malik, Feichtenhofer: Multiscale Vision Transformers. ICCV 2021. arXiv:2104.11227
Li, Wu, Fan, Mangalam, Xiong, Malik, Feichtenhofer: MViTv2: Improved Multiscale Vision Transformers for Classification
and Detection. CVPR 2022. arXiv:2112.01526
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.blocks.drop_path import drop_path_rates
from regard.blocks.pooling_attention import EPS, MultiScaleBlock, PoolingAttention, Shape, join_prefix, split_prefix
from regard.core.config import field
from regard.core.shapes import Float, Tensor, pair
from regard.core.spec import layer_spec
from regard.core.validation import validate
from regard.tokens.overlapping_patches import OverlappingPatchEmbedding


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an MViT; the defaults are MViTv2-T."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    num_frames: int | None = None  # of a clip; None: images
    channels: int = 3
    patch_size: int = 4  # stride in pixels; the kernel is nearly twice as wide
    width: int = 96  # of the first stage
    heads: int = 1  # of the first stage
    layers: tuple[int, ...] = (1, 2, 5, 2)  # of each stage
    kv_stride: int = 4  # stride of keys and values in the first stage, halved in each next, down to 1
    pooling: str = "conv"  # a spec of blocks.POOLINGS
    positions: Literal["relative", "added"] = "relative"
    widen_in: Literal["attention", "feedforward"] = (
        "attention"  # of a stage's first block, or feedforward of the last block before it
    )
    residual_pooling: Literal["all", "patches", "none"] = (
        "all"  # where pooled queries are added to the output; none: v1
    )
    class_token: bool = False
    dropout: float = field(0.0, low=0, below=1)  # before the head
    drop_path: float = field(0.0, low=0, below=1)
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module


_SMALL, _BASE, _LARGE = {"layers": (1, 2, 11, 2)}, {"layers": (2, 3, 16, 3)}, {"layers": (2, 6, 36, 4), "heads": 2}
_V1: dict[str, Any] = {
    **_SMALL,
    "positions": "added",
    "widen_in": "feedforward",
    "residual_pooling": "none",
    "class_token": True,
}
_CLIPS: dict[str, Any] = {"num_classes": 400, "num_frames": 16, "kv_stride": 8}

# MViTv2 on images (t to h), MViT on images (v1-b), and both on clips of 16 frames, as they were trained on Kinetics.
# Tiny and cifar are for images of 32 x 32, with a token for every second pixel.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"num_classes": 10, "image_size": 32, "patch_size": 2, "width": 24, "layers": (1, 1, 2, 1), "kv_stride": 2},
    "cifar": {
        "num_classes": 10,
        "image_size": 32,
        "patch_size": 2,
        "width": 48,
        "layers": (1, 2, 4, 1),
        "kv_stride": 2,
    },
    "t": {},
    "s": _SMALL,
    "b": _BASE,
    "l": {**_LARGE, "width": 144, "widen_in": "feedforward"},
    "s-token": {**_SMALL, "class_token": True},
    "b-token": {**_BASE, "class_token": True},
    "l-token": {**_LARGE, "width": 144, "class_token": True},
    "h-token": {"layers": (4, 8, 60, 8), "width": 192, "heads": 3, "class_token": True},
    "v1-b": _V1,
    "v1-b-clips": _V1 | _CLIPS,
    "s-clips": {**_SMALL, **_CLIPS, "residual_pooling": "patches", "class_token": True},
}


class MViT(nn.Module):
    """Images or clips to logits of classes."""

    forward_methods = ("pooled", "grid", "features")  # methods besides forward that FSDP must wrap
    no_weight_decay = ("prefix_tokens",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config, self.num_prefix_tokens = config, int(config.class_token)
        self.stem = OverlappingPatchEmbedding(
            config.channels, config.width, config.patch_size, clips=config.num_frames is not None
        )
        self.prefix_tokens = nn.Parameter(torch.zeros(1, config.width)) if config.class_token else None
        shape = self.stem.grid_size((*([config.num_frames] if config.num_frames else []), *pair(config.image_size)))
        self.positions = (
            SeparablePositions(config.width, shape, self.num_prefix_tokens) if config.positions == "added" else None
        )
        self.stages: Any = nn.ModuleList()
        for stage in range(len(config.layers)):
            blocks = [_block(config, stage, layer, shape) for layer in range(config.layers[stage])]
            self.stages.append(nn.ModuleList(blocks))
            shape = blocks[0].mix.q_pool.shape(shape)
        last = config.width * 2 ** (len(config.layers) - 1)
        self.norm, self.drop = nn.LayerNorm(last, EPS), nn.Dropout(config.dropout)
        self.head = nn.Linear(last, config.num_classes) if config.num_classes else nn.Identity()
        self.reset()

    def forward(self, images: Float[Tensor, "B I *S"]) -> Float[Tensor, "B K"]:
        """Return the logits of the classes, or the pooled vector if there are none."""
        out: Tensor = self.head(self.drop(self.pooled(images)))
        return out

    def pooled(self, images: Float[Tensor, "B I *S"]) -> Float[Tensor, "B C"]:
        """Return the class token or, without one, the mean of the last grid."""
        *_, (x, _) = self.pyramid(images)
        return self.norm(x[:, 0]) if self.num_prefix_tokens else self.norm(x).mean(1)

    def grid(self, images: Float[Tensor, "B I *S"]) -> Float[Tensor, "B *G C"]:
        """Return the normed tokens of the last layer on their grid: B Y X C, of clips B T Y X C."""
        *_, (x, shape) = self.pyramid(images)
        return self.norm(split_prefix(x, shape)[0])

    def features(self, images: Float[Tensor, "B I *S"]) -> list[Tensor]:
        """Return the output of each stage, B C Y X (B C T Y X), at strides of 1, 2, 4 and 8 patches.

        In the published sizes these are strides of 4, 8, 16 and 32 pixels.
        """
        return [split_prefix(x, shape)[0].movedim(-1, 1) for x, shape in self.pyramid(images)]

    def pyramid(self, images: Float[Tensor, "B I *S"]) -> Iterator[tuple[Float[Tensor, "B N C"], Shape]]:
        """Return the tokens after each stage, and the shape of their grid."""
        x = self.stem(images)
        shape = tuple(x.shape[1:-1])
        x = join_prefix(x, None if self.prefix_tokens is None else self.prefix_tokens.expand(x.shape[0], -1, -1))
        x = x if self.positions is None else x + self.positions(shape)
        for stage in self.stages:
            for block in stage:
                x, shape = block(x, shape)
            yield x, shape

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise as in the paper: truncated normal with std 0.02, biases 0; convolutions as in torch."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        if self.prefix_tokens is not None:
            nn.init.trunc_normal_(self.prefix_tokens, std=0.02)


class SeparablePositions(nn.Module):
    """Learned positions of space, of time and of the prefix tokens; interpolated for other sizes."""

    no_weight_decay = ("space", "time", "before")

    def __init__(self, width: int, shape: Shape, before: int) -> None:
        super().__init__()
        *frames, self.rows, self.columns = shape
        self.space = nn.Parameter(torch.empty(self.rows * self.columns, width))
        self.time = nn.Parameter(torch.empty(frames[0], width)) if frames else None
        self.before = nn.Parameter(torch.empty(before, width)) if before else None
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, shape: Shape) -> Float[Tensor, "N C"]:
        """Return the positions of every token of a grid of this shape."""
        *frames, rows, columns = shape
        table = self.space.unflatten(0, (self.rows, self.columns))  # Y X C
        if (rows, columns) != (self.rows, self.columns):
            table = F.interpolate(table.movedim(-1, 0)[None], (rows, columns), mode="bicubic")[0].movedim(0, -1)
        if self.time is not None:
            time = self.time.T[None]  # 1 C T
            time = time if time.shape[2] == frames[0] else F.interpolate(time, frames[0], mode="linear")
            table = time[0].T[:, None, None] + table
        return join_prefix(table[None], None if self.before is None else self.before[None])[0]


def _block(config: Config, stage: int, layer: int, shape: Shape) -> MultiScaleBlock:
    """Build block `layer` of a stage; `shape` is the grid at its input."""
    first, last = layer == 0, layer == config.layers[stage] - 1
    own, feeds = config.width * 2**stage, config.widen_in == "feedforward"
    before = sum(config.layers[:stage]) + layer
    halves, still = first and stage > 0, (1,) if config.num_frames else ()
    stride, keys = (2 if halves else 1,) * 2, (max(config.kv_stride >> stage, 1),) * 2
    if not first and stage > 0:
        shape = (*shape[:-2], *(-(-n // 2) for n in shape[-2:]))
    longest = max(-(-max(shape[-2:]) // min(stride[0], keys[0])), 1)
    mix = PoolingAttention(
        own // 2 if halves and not feeds else own,
        own,
        config.heads * 2**stage,
        stride=(*still, *stride),
        kv_stride=(*still, *keys),
        pooling=config.pooling,
        max_grid=(*shape[:-2], longest, longest) if config.positions == "relative" else None,
        residual=config.residual_pooling,
        num_prefix=int(config.class_token),
        attention=layer_spec(config.attention, before),
    )
    out = 2 * own if feeds and last and stage < len(config.layers) - 1 else own
    return MultiScaleBlock(mix, out, drop_path_rates(config.drop_path, sum(config.layers))[before])
